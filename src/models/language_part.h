// The language model of a directory whose model has other parts too, such as a tower for pictures:
// read alone, it is a model of one of the decoder families.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "files/weights/tensor_source.h"
#include "models/whole_model.h"

namespace snug::models {

// Whether the language model of such a config.json can be read alone: its computation for text is
// known to be that of its decoder family.
bool has_language_part(const nlohmann::json& config);

// Its config.json as one of that family. `config`: one for which has_language_part() holds; `where`
// names it in errors.
nlohmann::json language_config(const nlohmann::json& config, const std::string& where);

struct LanguagePart {
  nlohmann::json config;
  std::unique_ptr<files::TensorSource> tensors;  // its own, by that family's names
  std::shared_ptr<const WholeModel> whole;
};

// The same with its tensors. Whether embedding and head share a weight is as these show it:
// versions of transformers disagree on which of the config's values counts. Throws UserError if no
// tensor belongs to a language model.
LanguagePart language_part(const nlohmann::json& config, const std::filesystem::path& folder,
                           std::unique_ptr<files::TensorSource> all);

}  // namespace snug::models
