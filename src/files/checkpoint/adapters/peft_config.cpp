// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/adapters/peft_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "files/weights/byte_reader.h"

namespace snug::checkpoint {
namespace {

// Patterns are tried in the order of the file.
using Json = nlohmann::ordered_json;
using files::printable;

constexpr size_t kMaxConfigBytes = size_t{1} << 24;
constexpr int64_t kMaxRank = 1 << 16;

struct Refused {
  std::string_view key;
  std::string_view why;  // why it is not supported, and what to do instead
};

// Keys that change the meaning of the tensors unless they are null, false or empty.
constexpr std::array kRefused{
    Refused{"trainable_token_indices",
            "trained rows of the embedding are not supported; merge the adapter with peft "
            "(merge_and_unload) and use the merged model"},
    Refused{"lora_bias",
            "adapters with biases are not supported; train without lora_bias, or merge with peft"},
    Refused{"layer_replication",
            "it repeats layers to make a deeper model, which is not supported; merge the adapter "
            "with peft "
            "(merge_and_unload) and use the merged model"},
    Refused{"alora_invocation_tokens",
            "activated LoRA adapts only some tokens and is not supported; train a plain LoRA"},
    Refused{"use_qalora", "QA-LoRA pools its inputs and is not supported; train a plain LoRA"},
    Refused{"use_bdlora", "block-diagonal LoRA is not supported; train a plain LoRA"},
    Refused{"arrow_config", "Arrow routes between adapters and is not supported; give one of them"},
    Refused{"kasa_config",
            "KaSA changes the base's weights and is not supported; train a plain LoRA"},
    Refused{"monteclora_config", "MonteCLoRA is not supported; train a plain LoRA"},
    Refused{"megatron_config",
            "Megatron's layers are not supported; save the adapter for transformers"},
};

// Initializations that also change the base's weights, so that the adapter does not fit the
// original ones.
constexpr std::array<std::string_view, 5> kChangesBase{"pissa", "olora", "corda", "loftq",
                                                       "lora_ga"};

// Known keys that do not change the meaning of the tensors.
constexpr std::array<std::string_view, 18> kWithoutEffect{
    "auto_mapping",        "corda_config",   "enable_lora",
    "ensure_weight_tying", "eva_config",     "inference_mode",
    "loftq_config",        "lora_ga_config", "megatron_core",
    "merge_weights",       "peft_type",      "peft_version",
    "qalora_group_size",   "revision",       "runtime_config",
    "velora_config",       "bias",           "ephemeral_gpu_offload"};

constexpr std::array<std::string_view, 17> kRead{"r",
                                                 "lora_alpha",
                                                 "lora_dropout",
                                                 "target_modules",
                                                 "exclude_modules",
                                                 "target_parameters",
                                                 "layers_to_transform",
                                                 "layers_pattern",
                                                 "rank_pattern",
                                                 "alpha_pattern",
                                                 "use_rslora",
                                                 "use_dora",
                                                 "fan_in_fan_out",
                                                 "init_lora_weights",
                                                 "modules_to_save",
                                                 "base_model_name_or_path",
                                                 "task_type"};

// Null, false or empty: false in Python.
bool is_unset(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_string() && value.get<std::string>().empty()) ||
         (value.is_structured() && value.empty());
}

class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool has(std::string_view key) const {
    return object_.contains(key) && !object_[std::string(key)].is_null();
  }
  const Json& value(std::string_view key) const { return object_[std::string(key)]; }

  [[noreturn]] void wrong(std::string_view key, const Json& found, std::string_view wanted) const {
    throw UserError("{}: \"{}\" is {}; it must be {}", where_, key, printable(dump(found)), wanted);
  }
  bool boolean(std::string_view key) const {
    if (!has(key)) return false;
    if (!value(key).is_boolean()) wrong(key, value(key), "true or false");
    return value(key).get<bool>();
  }
  std::string text(std::string_view key) const {
    if (!has(key)) return {};
    if (!value(key).is_string()) wrong(key, value(key), "a text");
    return value(key).get<std::string>();
  }
  double number(std::string_view key, double otherwise) const {
    return has(key) ? finite(key, value(key)) : otherwise;
  }
  int64_t rank(std::string_view key, int64_t otherwise) const {
    return has(key) ? whole_rank(key, value(key)) : otherwise;
  }
  std::vector<std::string> texts(std::string_view key) const {
    std::vector<std::string> all;
    if (!has(key)) return all;
    const Json list = value(key).is_array() ? value(key) : Json::array({value(key)});
    for (const Json& item : list) {
      if (!item.is_string()) wrong(key, value(key), "a text or a list of texts");
      all.push_back(item.get<std::string>());
    }
    return all;
  }
  std::vector<int64_t> numbers(std::string_view key) const {
    std::vector<int64_t> all;
    if (!has(key)) return all;
    const Json list = value(key).is_array() ? value(key) : Json::array({value(key)});
    for (const Json& item : list) {
      if (!item.is_number_integer()) wrong(key, value(key), "a list of whole numbers");
      all.push_back(item.get<int64_t>());
    }
    return all;
  }
  ModuleChoice modules(std::string_view key) const {
    ModuleChoice choice;
    if (has(key) && value(key).is_string())
      choice.pattern = text(key);
    else
      choice.names = texts(key);
    return choice;
  }
  std::vector<std::pair<std::string, int64_t>> ranks(std::string_view key) const {
    std::vector<std::pair<std::string, int64_t>> all;
    const Json patterns = object_of(key);
    for (const auto& [pattern, item] : patterns.items())
      all.emplace_back(pattern, whole_rank(std::string(key) + ": " + printable(pattern), item));
    return all;
  }
  std::vector<std::pair<std::string, double>> alphas(std::string_view key) const {
    std::vector<std::pair<std::string, double>> all;
    const Json patterns = object_of(key);
    for (const auto& [pattern, item] : patterns.items())
      all.emplace_back(pattern, finite(std::string(key) + ": " + printable(pattern), item));
    return all;
  }
  const std::string& where() const { return where_; }

 private:
  static std::string dump(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  Json object_of(std::string_view key) const {
    if (!has(key)) return Json::object();
    if (!value(key).is_object()) wrong(key, value(key), "an object of patterns and numbers");
    return value(key);
  }
  double finite(std::string_view key, const Json& found) const {
    if (!found.is_number() || !std::isfinite(found.get<double>())) wrong(key, found, "a number");
    return found.get<double>();
  }
  int64_t whole_rank(std::string_view key, const Json& found) const {
    if (!found.is_number_integer() || found.get<int64_t>() < 1 || found.get<int64_t>() > kMaxRank)
      wrong(key, found, "a whole number from 1 to " + std::to_string(kMaxRank));
    return found.get<int64_t>();
  }

  const Json& object_;
  std::string where_;
};

void refuse_what_is_not_read(const Reader& config) {
  const std::string type = config.text("peft_type");
  if (type != "LORA")
    throw UserError(
        "{}: \"peft_type\" is {}; it must be LORA: snug supports only LoRA adapters (with DoRA and "
        "rsLoRA)",
        config.where(), type.empty() ? "missing" : "\"" + printable(type) + "\"");
  for (const Refused& refused : kRefused)
    if (config.has(refused.key) && !is_unset(config.value(refused.key)))
      throw UserError("{}: \"{}\" is set: {}", config.where(), refused.key, refused.why);
  const std::string bias = config.has("bias") ? config.text("bias") : "none";
  if (bias != "none")
    throw UserError(
        "{}: \"bias\" is \"{}\"; it must be none: trained biases are not supported; merge the "
        "adapter "
        "with peft (merge_and_unload) and use the merged model",
        config.where(), printable(bias));
}

std::string read_start(const Reader& config) {
  constexpr const char* kKey = "init_lora_weights";
  if (!config.has(kKey)) return "true";
  const Json& value = config.value(kKey);
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (!value.is_string()) config.wrong(kKey, value, "true, false or a method's name");
  std::string method = value.get<std::string>();
  std::ranges::transform(method, method.begin(), [](unsigned char c) { return std::tolower(c); });
  if (std::ranges::any_of(kChangesBase, [&](auto name) { return method.starts_with(name); }))
    throw UserError(
        "{}: \"{}\" is \"{}\", which also changes the base's weights, so that the adapter does "
        "not suit the original ones; let peft save it as a plain LoRA: save_pretrained(…, "
        "path_initial_model_for_weight_conversion=…)",
        config.where(), kKey, printable(method));
  return method;
}

void warn_about_unknown(const Json& root, const std::string& where) {
  for (const auto& [key, value] : root.items()) {
    const auto is_key = [&key = key](std::string_view known) { return known == key; };
    const bool known =
        std::ranges::any_of(kRead, is_key) || std::ranges::any_of(kWithoutEffect, is_key) ||
        std::ranges::any_of(kRefused, [&](const Refused& r) { return is_key(r.key); });
    if (!known && !is_unset(value))
      warn("{}: \"{}\" is unknown here and is ignored; a newer peft may have written it", where,
           printable(key));
  }
}

Json number(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  return whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json modules_json(const ModuleChoice& choice) {
  if (!choice.pattern.empty()) return choice.pattern;
  return choice.names.empty() ? Json() : Json(choice.names);
}

template <class Value>
Json patterns_json(const std::vector<std::pair<std::string, Value>>& patterns) {
  Json out = Json::object();
  for (const auto& [pattern, value] : patterns) out[pattern] = number(static_cast<double>(value));
  return out;
}

template <class Items>
Json null_if_empty(const Items& items) {
  return items.empty() ? Json() : Json(items);
}

Json start_json(const std::string& method) {
  if (method == "true" || method == "false") return method == "true";
  return method;
}

}  // namespace

AdapterConfig read_peft_config(const std::filesystem::path& file) {
  const std::string where = file.string();
  const Json root = Json::parse(read_file(file, kMaxConfigBytes), nullptr, false);
  if (root.is_discarded() || !root.is_object())
    throw UserError("{} is not a JSON object; the file is damaged, fetch or save it again", where);
  const Reader reader(root, where);
  refuse_what_is_not_read(reader);
  warn_about_unknown(root, where);
  AdapterConfig config;
  config.r = reader.rank("r", config.r);
  config.lora_alpha = reader.number("lora_alpha", config.lora_alpha);
  config.lora_dropout = reader.number("lora_dropout", 0);
  if (config.lora_dropout < 0 || config.lora_dropout >= 1)
    reader.wrong("lora_dropout", reader.value("lora_dropout"), "a number from 0 to below 1");
  config.target_modules = reader.modules("target_modules");
  config.exclude_modules = reader.modules("exclude_modules");
  config.target_parameters = reader.texts("target_parameters");
  config.layers_to_transform = reader.numbers("layers_to_transform");
  config.layers_pattern = reader.texts("layers_pattern");
  std::erase(config.layers_pattern, "");  // as older versions write an absent one
  config.rank_pattern = reader.ranks("rank_pattern");
  config.alpha_pattern = reader.alphas("alpha_pattern");
  config.use_rslora = reader.boolean("use_rslora");
  config.use_dora = reader.boolean("use_dora");
  config.fan_in_fan_out = reader.boolean("fan_in_fan_out");
  config.modules_to_save = reader.texts("modules_to_save");
  config.init_lora_weights = read_start(reader);
  config.base_model_name_or_path = reader.text("base_model_name_or_path");
  if (reader.has("task_type")) config.task_type = reader.text("task_type");
  return config;
}

std::string peft_config_text(const AdapterConfig& config) {
  const std::string& base = config.base_model_name_or_path;
  Json root{
      {"peft_type", "LORA"},
      {"task_type", config.task_type},
      {"base_model_name_or_path", base.empty() ? Json() : Json(base)},
      {"revision", nullptr},
      {"inference_mode", true},
      {"r", config.r},
      {"lora_alpha", number(config.lora_alpha)},
      {"lora_dropout", config.lora_dropout},
      {"target_modules", modules_json(config.target_modules)},
      {"layers_to_transform", null_if_empty(config.layers_to_transform)},
      {"layers_pattern", null_if_empty(config.layers_pattern)},
      {"rank_pattern", patterns_json(config.rank_pattern)},
      {"alpha_pattern", patterns_json(config.alpha_pattern)},
      {"use_rslora", config.use_rslora},
      {"use_dora", config.use_dora},
      {"init_lora_weights", start_json(config.init_lora_weights)},
      {"bias", "none"},
      {"fan_in_fan_out", config.fan_in_fan_out},
      {"modules_to_save", null_if_empty(config.modules_to_save)},
  };
  // Keys that older versions of peft do not know are omitted if they have no effect.
  if (!config.exclude_modules.empty())
    root["exclude_modules"] = modules_json(config.exclude_modules);
  if (!config.target_parameters.empty()) root["target_parameters"] = config.target_parameters;
  // A path need not be UTF-8; an adapter whose base is to be named by hand is better than none.
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace snug::checkpoint
