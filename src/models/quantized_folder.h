// Hugging Face folders whose weights another program has quantized.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "files/weights/tensor_source.h"
#include "models/model.h"

namespace snug::models {

// Makes one tensor of each packed weight (files/weights/packed/join.h). Throws UserError for parts
// that do not fit each other, and for a layout that snug does not read, by its name in the config.
void unpack_quantized(files::TensorSource& tensors, const nlohmann::json& config,
                      const std::filesystem::path& folder);

// The same of a config alone, by its llm_int8_skip_modules: as transformers compares names, the
// beginning of a module's, its end, or whole words in it.
void mark_plain_weights(Model& model, const nlohmann::json& config);

// The value of quantize that keeps the folder's weights as they are ("bnb.nf4-dq"); empty if none
// does. `path`: a folder or a config.json; of a folder that is not here the name counts, whose end
// -bnb-4bit means bnb.nf4-dq.
std::string stored_quantization(const std::filesystem::path& path);

}  // namespace snug::models
