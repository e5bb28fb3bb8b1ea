// The table of models that people fine-tune (recipes/models/hub.json): what a plan needs of each
// is in it, so that none of them has to be downloaded to be planned.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace snug::recipe {

// Models of one shape.
struct HubModel {
  std::vector<std::string> ids;  // on the Hugging Face hub; the first one stands for all
  std::string published;         // the number of parameters as its maker gives it: "8.2B"
  int64_t parameters = 0;        // the hub's count of the weights' files; 0: not known
  std::string source;            // the maker's page
  std::string config;            // the text of its config.json

  const std::string& id() const { return ids.front(); }
  double size() const;  // parameters, or the published number
};

// By family, the smallest first.
std::span<const HubModel> hub_models();

// "qwen3-8b" of "Qwen/Qwen3-8B".
std::string short_name(std::string_view id);
std::vector<std::string> hub_short_names();  // of all ids

// The short name of the model that a quantized copy was made from, by the ends that such copies
// have: "qwen3-8b" of "qwen3-8b-unsloth-bnb-4bit", "-awq", "-gptq-int4", "-fp8". Others stay.
std::string name_before_quantization(std::string_view short_name);

// The id that `name` stands for: an id in any spelling of its letters, a short name, or the
// beginning of only one, with its size ("llama-3.3-70b"). Empty: none in the table.
std::string hub_id_of(std::string_view name);
// The same, or the word itself where it stands for none: what is asked of the hub.
std::string id_or_word(std::string_view word);
// The shape of the model with this id; nullptr: not in the table.
const HubModel* find_hub_model(std::string_view id);
// Those whose ids contain `part`, whatever its letters' case.
std::vector<const HubModel*> hub_models_like(std::string_view part);

// The folder of a model that a user names: the one that `snug download` writes,
// checkpoints/ORG/NAME, for a name in the table and for any id that was downloaded; otherwise the
// path as it is.
std::string model_folder(std::string_view word);
// The same for a recipe of another program, where ORG/NAME is an id unless it is there.
std::string imported_model_folder(std::string_view word);

}  // namespace snug::recipe
