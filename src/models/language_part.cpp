// SPDX-License-Identifier: Apache-2.0
#include "models/language_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "models/config_fields.h"
#include "models/decoder/families.h"
#include "models/unread_tensors.h"

namespace snug::models {
namespace {

using nlohmann::json;

struct Type {
  const char* model_type;
  const char* language;  // its text_config's model_type if that names none
};

// tests/oracles/language_part.py compares each with transformers.
constexpr std::array<Type, 12> kTypes = {{{"gemma3", "gemma3_text"},
                                          {"gemma4", "gemma4_text"},
                                          {"gemma4_unified", "gemma4_unified_text"},
                                          {"internvl", "qwen2"},
                                          {"llava", "llama"},
                                          {"llava_onevision", "qwen2"},
                                          {"mistral3", "mistral"},
                                          {"qwen2_vl", "qwen2_vl_text"},
                                          {"qwen2_5_vl", "qwen2_5_vl_text"},
                                          {"qwen3_5", "qwen3_5_text"},
                                          {"qwen3_5_moe", "qwen3_5_moe_text"},
                                          {"qwen3_vl", "qwen3_vl_text"}}};

// What transformers takes where a text_config leaves it out, as those of Gemma 3 and LLaVA do.
struct Defaults {
  const char* model_type;  // of text_config
  const char* family;      // of decoders
  const char* values;
};

constexpr const char* kOfQwen =
    R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32})";
constexpr const char* kOfQwen2Vl =
    R"({"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0})";
constexpr const char* kOfGemma4 =
    R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
        "num_attention_heads": 8})";
constexpr std::array<Defaults, 12> kDefaults = {
    {{"gemma3_text", "gemma3_text",
      R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
          "num_attention_heads": 8})"},
     {"gemma4_text", "gemma4_text", kOfGemma4},
     {"gemma4_unified_text", "gemma4_unified_text", kOfGemma4},
     {"llama", "llama",
      R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
          "num_attention_heads": 32})"},
     {"mistral", "mistral",
      R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
          "num_attention_heads": 32, "num_key_value_heads": 8})"},
     {"qwen2", "qwen2", kOfQwen},
     {"qwen3", "qwen3", kOfQwen},
     {"qwen2_vl_text", "qwen2", kOfQwen2Vl},
     {"qwen2_5_vl_text", "qwen2", kOfQwen2Vl},
     {"qwen3_5_text", "qwen3_5_text",
      R"({"vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
          "num_attention_heads": 16})"},
     {"qwen3_5_moe_text", "qwen3_5_moe_text",
      R"({"vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40,
          "num_attention_heads": 16})"},
     {"qwen3_vl_text", "qwen3",
      R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
          "num_attention_heads": 32, "num_key_value_heads": 32, "rope_theta": 500000.0})"}}};

const Type* find_type(const json& config) {
  const json type = config.value("model_type", json());
  const auto* found =
      std::ranges::find_if(kTypes, [&](const Type& t) { return type == t.model_type; });
  return found == kTypes.end() ? nullptr : found;
}

// Rotary embeddings of several axes turn a text token by its place on each, which is the same.
void drop_axes(json& text) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!text.contains(key) || !text[key].is_object()) continue;
    json& rope = text[key];
    rope.erase("mrope_section");
    rope.erase("mrope_interleaved");
    for (const char* type : {"type", "rope_type"})
      if (rope.contains(type) && rope[type] == "mrope") rope[type] = "default";
  }
}

json text_config(const Type& type, const json& root, const std::string& where) {
  json text = root;
  if (has_field(root, "text_config")) {
    text = root["text_config"];
    const ConfigFields check(text, where + ": text_config");  // refuses what is no object
  } else {
    text.erase("vision_config");
    text.erase("text_config");
    text["model_type"] = type.language;
  }
  if (!has_field(text, "model_type")) text["model_type"] = type.language;
  for (const auto& defaults : kDefaults) {
    if (text["model_type"] != defaults.model_type) continue;
    text["model_type"] = defaults.family;
    const bool has_rope = has_field(text, "rope_parameters");
    const json values = json::parse(defaults.values);
    for (const auto& [key, value] : values.items())
      if (!has_field(text, key.c_str()) && !(has_rope && key == "rope_theta")) text[key] = value;
    break;
  }
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (!has_field(text, key) && has_field(root, key)) text[key] = root[key];
  if (!has_field(text, kTied) && has_field(root, kTied)) text[kTied] = root[kTied];
  drop_axes(text);
  return text;
}

// "language_model.model.norm.weight", "model.language_model.norm.weight" and, of files without such
// a part of the name, "model.norm.weight" -> "model.norm.weight". None for other parts' tensors.
std::optional<std::string> language_name(std::string_view name) {
  constexpr std::string_view kPart = "language_model.";
  if (name.starts_with("model.language_model."))
    name.remove_prefix(std::string_view("model.").size());
  if (name.starts_with(kPart)) {
    name.remove_prefix(kPart.size());
    if (name.starts_with("lm_head.") || name.starts_with("model.")) return std::string(name);
    return "model." + std::string(name);
  }
  for (const char* own : {"lm_head.", "model.layers.", "model.embed_tokens.", "model.norm.",
                          "model.embed_tokens_per_layer.", "model.per_layer_"})
    if (name.starts_with(own)) return std::string(name);
  return std::nullopt;
}

// The layers of each expert, out of a tensor that has one for all: gates and behind them ups
// (E, 2F, D), or (E, D, F). Anything else stays as it is.
std::vector<files::PlacedTensor> experts_of(const files::PlacedTensor& all) {
  constexpr std::string_view kGates = ".experts.gate_up_proj", kDowns = ".experts.down_proj";
  const std::string& name = all.info.name;
  const bool has_gates = name.ends_with(kGates);
  if ((!has_gates && !name.ends_with(kDowns)) || all.info.shape.size() != 3 ||
      !all.strides.empty() || (has_gates && all.info.shape[1] % 2 != 0))
    return {all};
  const std::string prefix = name.substr(0, name.rfind('.') + 1);
  const int64_t experts = all.info.shape[0], rows = all.info.shape[1] / (has_gates ? 2 : 1);
  const size_t bytes = all.info.nbytes / static_cast<size_t>(experts * (has_gates ? 2 : 1));
  std::vector<files::PlacedTensor> each;
  for (int64_t expert = 0; expert < experts; ++expert)
    for (const char* layer : {has_gates ? "gate_proj" : "down_proj", "up_proj"}) {
      if (!has_gates && layer == std::string_view("up_proj")) continue;
      files::PlacedTensor own = all;
      own.info.name = fmt::format("{}{}.{}.weight", prefix, expert, layer);
      own.info.shape = {rows, all.info.shape[2]};
      own.info.nbytes = bytes;
      own.offset += bytes * each.size();
      each.push_back(std::move(own));
    }
  return each;
}

bool head_is_shared(const json& root, const json& text, const files::TensorSource& tensors) {
  const files::TensorInfo* head = tensors.find("lm_head.weight");
  const files::TensorInfo* embedding = tensors.find("model.embed_tokens.weight");
  if (head == nullptr || embedding == nullptr) return head == nullptr;
  const bool separate = text.value(kTied, json()) == false || root.value(kTied, json()) == false;
  return !separate && same_tensor(tensors, *head, *embedding);
}

}  // namespace

bool has_language_part(const json& config) {
  return config.is_object() && find_type(config) != nullptr;
}

json language_config(const json& config, const std::string& where) {
  const Type* type = find_type(config);
  SNUG_CHECK(type != nullptr, "{}: no language part", where);
  return text_config(*type, config, where);
}

LanguagePart language_part(const json& config, const std::filesystem::path& folder,
                           std::unique_ptr<files::TensorSource> all) {
  const std::string where = (folder / "config.json").string(), label = all->label();
  LanguagePart part{.config = language_config(config, where)};
  auto whole = std::make_shared<WholeModel>(WholeModel{.folder = folder, .config = config});
  files::TensorSource::Parts parts = files::TensorSource::take_apart(std::move(all));
  std::vector<files::PlacedTensor> own;
  // Whether the language model's own files have a tensor for all experts too.
  const decoder::Family* family =
      decoder::find_family(part.config["model_type"].get<std::string>());
  const bool in_one = family != nullptr && family->fused_experts;
  for (files::PlacedTensor& tensor : parts.tensors) {
    if (auto name = language_name(tensor.info.name)) {
      WholeModel::Place place{.tensor = std::exchange(tensor.info.name, std::move(*name))};
      const std::vector<int64_t> shape = tensor.info.shape;
      std::vector<files::PlacedTensor> each =
          in_one ? std::vector{std::move(tensor)} : experts_of(tensor);
      if (each.size() > 1) place.shape = shape;
      for (files::PlacedTensor& one : each) {
        whole->places[one.info.name] = place;
        ++place.index;
        own.push_back(std::move(one));
      }
    } else {
      ++whole->num_others;
      whole->bytes_others += tensor.info.nbytes;
    }
  }
  if (own.empty())
    throw UserError("{}: no tensor of a language model is in {} ({} others)", where, label,
                    whole->num_others);
  part.tensors =
      std::make_unique<files::TensorSource>(label, std::move(parts.files), std::move(own));
  whole->shares_head = head_is_shared(config, part.config, *part.tensors);
  part.config[kTied] = whole->shares_head;
  part.whole = std::move(whole);
  return part;
}

}  // namespace snug::models
