// SPDX-License-Identifier: Apache-2.0
#include "models/whole_model.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "models/config_fields.h"
#include "models/language_part.h"
#include "models/quantized_folder.h"

namespace snug::models {
namespace {

using nlohmann::json;

// What training may change of a language model's config.
constexpr const char* kChanged[] = {"vocab_size", "vocab_size_per_layer_input", "bos_token_id",
                                    "eos_token_id"};

void set_dtype(json& config, const std::string& dtype) {
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype;
}

}  // namespace

std::string WholeModel::others() const {
  return fmt::format("{} tensor{} ({})", num_others, num_others == 1 ? "" : "s",
                     format_bytes(bytes_others));
}

std::string WholeModel::name_of_new(const std::string& name) const {
  constexpr std::string_view kModel = "model.";
  for (const auto& [own, place] : places) {
    if (!own.starts_with(kModel) || !place.shape.empty()) continue;
    // "language_model.model.norm.weight": the whole language model is within that part. Not so
    // "model.language_model.norm.weight", which ends alike.
    if (place.tensor == own) return name;
    if (place.tensor.ends_with("." + own))
      return place.tensor.substr(0, place.tensor.size() - own.size()) + name;
    break;
  }
  return name.starts_with(kModel) ? kLanguageLayers + name.substr(kModel.size()) : name;
}

std::string words_on(const WholeModel& whole) {
  return fmt::format("of a {} the language model is trained; its other parts{} stay as they are",
                     whole.model_type(), whole.num_others > 0 ? ", " + whole.others() + "," : "");
}

json whole_config(const WholeModel& whole, const json& language, const std::string& dtype) {
  json root = whole.config;
  const json known = language_config(root, "config.json");
  const bool in_parts = has_field(root, "text_config");
  json& text = in_parts ? root["text_config"] : root;
  for (const char* key : kChanged)
    if (has_field(language, key) && language[key] != known.value(key, json()))
      text[key] = language[key];
  if (const bool shares = language.value(kTied, whole.shares_head); shares != whole.shares_head) {
    text[kTied] = shares;
    root[kTied] = shares;
  }
  root.erase("quantization_config");
  set_dtype(root, dtype);
  if (in_parts && (text.contains("dtype") || text.contains("torch_dtype"))) set_dtype(text, dtype);
  return root;
}

std::unique_ptr<files::TensorSource> open_others(const WholeModel& whole) {
  auto all = files::open_model_directory(whole.folder);
  const std::string label = all->label();
  files::TensorSource::Parts parts = files::TensorSource::take_apart(std::move(all));
  std::set<std::string> own;
  for (const auto& [_, place] : whole.places) own.insert(place.tensor);
  std::erase_if(parts.tensors,
                [&](const files::PlacedTensor& tensor) { return own.contains(tensor.info.name); });
  auto others = std::make_unique<files::TensorSource>(label, std::move(parts.files),
                                                      std::move(parts.tensors));
  if (std::ssize(others->tensors()) != whole.num_others ||
      others->total_bytes() != whole.bytes_others)
    throw UserError("{}: beside the language model it no longer has the {} that were there",
                    whole.folder.string(), whole.others());
  unpack_quantized(*others, whole.config, whole.folder);
  return others;
}

}  // namespace snug::models
