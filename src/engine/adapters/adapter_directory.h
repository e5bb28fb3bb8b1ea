// A folder with a PEFT or LitGPT adapter, and the base model that it belongs to.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "files/checkpoint/adapters/adapter.h"
#include "models/model.h"

namespace snug::engine {

// Whether the folder holds an adapter and no merged model beside it (LitGPT leaves both after
// merging).
bool is_adapter_directory(const std::filesystem::path& directory);

// Finds the adapter's base model on this machine: by path, or a hub name in ./checkpoints or the
// Hugging Face cache. Throws UserError with the places searched.
std::filesystem::path find_base(const std::filesystem::path& directory);

// The options that quantize a base as the run beside whose run.json the adapter lies had it:
// "--quantize bnb.nf4 --precision bf16-true"; empty if it was not quantized, or nobody knows.
std::string quantizing_options(const std::filesystem::path& directory);

// Reads the adapter and checks it against the model. Throws UserError with the module and both
// shapes if they do not match.
checkpoint::Adapter read_adapter(const std::filesystem::path& directory, models::Model& base);

}  // namespace snug::engine
