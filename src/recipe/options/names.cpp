// SPDX-License-Identifier: Apache-2.0
#include "recipe/options/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <span>

#include "base/error.h"
#include "recipe/numbers.h"
#include "recipe/tables/choices.h"

namespace snug::recipe {
namespace {

struct DataClass {
  std::string_view name;
  double val_split_fraction;
  std::string_view prompt_style = "alpaca";
  std::optional<int64_t> max_samples = std::nullopt;  // of a source without an end
  bool has_validation = false;                        // a part of its own
};

// LitGPT's classes with their defaults, then snug's own.
constexpr DataClass kDataClasses[] = {
    {"JSON", 0.05, "auto"},
    {"Alpaca2k", 0.05},
    {"Alpaca", 0.03865},
    {"AlpacaGPT4", 0.03847},
    {"Dolly", 0.1},
    {"LIMA", 0.1},
    {"Deita", 0.05, "alpaca", std::nullopt, true},
    {"FLAN", 0.05, "flan", std::nullopt, true},
    {"LongForm", 0.05, "longform", std::nullopt, true},
    {"ImageFolder", 0.05, "auto"},
    {"HFDataset", 0.05, "auto"},
    {"TextFiles", 0.05, "plain"},
    {"Synthetic", 0, "plain", 256},
};

// The names of each strategy in Lightning, DeepSpeed and PyTorch's FSDP, in lower case.
struct StrategyName {
  std::string_view name;
  std::vector<std::string_view> spellings;
};

const std::vector<StrategyName>& strategies() {
  static const std::vector<StrategyName> kStrategies = {
      {"auto", {}},
      {"ddp",
       {"ddpstrategy", "no_shard", "ddp_find_unused_parameters_false",
        "ddp_find_unused_parameters_true"}},
      {"zero1", {"deepspeed_stage_1"}},
      {"zero2", {"deepspeed_stage_2", "shard_grad_op"}},
      {"fsdp", {"zero3", "deepspeed_stage_3", "full_shard", "fsdpstrategy", "fsdp_cpu"}},
      {"hybrid", {"hybrid_shard"}},
  };
  return kStrategies;
}

constexpr std::string_view kOffload = "_offload";

// "FSDPStrategy(sharding_strategy='FULL_SHARD')" -> "full_shard", "DeepSpeedStrategy(stage=3,
// offload_optimizer=True)" -> "deepspeed_stage_3_offload": the arguments of a constructor as part
// of its name. In lower case, without modules.
std::string name_of_call(std::string_view text) {
  const std::string call = lower(text);
  const size_t open = call.find('(');
  const std::string word(last_word(std::string_view(call).substr(0, open)));
  if (open == std::string::npos) return word;
  const auto argument = [&](std::string_view key) {
    const size_t at = call.find(key, open);
    if (at == std::string::npos) return std::string();
    const size_t begin = std::min(call.find_first_not_of("'\"", at + key.size()), call.size());
    return call.substr(begin, call.find_first_of("'\",)", begin) - begin);
  };
  if (const std::string kind = argument("sharding_strategy="); !kind.empty()) return kind;
  if (const std::string stage = argument("stage="); word == "deepspeedstrategy" && !stage.empty())
    return "deepspeed_stage_" + stage +
           std::string(argument("offload_optimizer=") == "true" ? kOffload : "");
  return word;
}

const DataClass* find_data(std::string_view name) {
  const std::string word = lower(last_word(name));
  for (const DataClass& known : kDataClasses)
    if (lower(known.name) == word) return &known;
  return nullptr;
}

}  // namespace

std::string_view last_word(std::string_view path) { return path.substr(path.rfind('.') + 1); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

std::string normalise_data(std::string_view name) {
  const DataClass* known = find_data(name);
  return std::string(known ? known->name : name);
}

bool is_data_name(std::string_view name) { return find_data(name) != nullptr; }

std::vector<std::string> data_names() {
  std::vector<std::string> names;
  for (const DataClass& known : kDataClasses) names.emplace_back(known.name);
  return names;
}

bool is_text_file(std::string_view name) {
  return (name.ends_with(".txt") && name.size() > 4) || (name.ends_with(".md") && name.size() > 3);
}

double data_val_split_fraction(std::string_view name) {
  const DataClass* known = find_data(name);
  return known ? known->val_split_fraction : DataOptions{}.val_split_fraction;
}

bool data_has_validation(std::string_view name) {
  const DataClass* known = find_data(name);
  return known != nullptr && known->has_validation;
}

std::string data_prompt_style(std::string_view name) {
  const DataClass* known = find_data(name);
  return known ? std::string(known->prompt_style) : DataOptions{}.prompt_style;
}

std::optional<int64_t> data_max_samples(std::string_view name) {
  const DataClass* known = find_data(name);
  return known ? known->max_samples : std::nullopt;
}

std::vector<std::string> online_loggers() { return {"wandb", "mlflow", "litlogger"}; }

std::string normalise_precision(std::string_view name) {
  if (name == "32" || name == "fp32" || name == "fp32-true") return "32-true";
  if (name == "bf16") return "bf16-mixed";
  if (name == "16" || name == "fp16" || name == "fp16-mixed") return "16-mixed";
  if (name == "fp16-true") return "16-true";
  return std::string(name);
}

std::string normalise_strategy(std::string_view name) {
  const std::string word = name_of_call(name);
  const bool offloads = word.ends_with(kOffload);
  const std::string_view stem(word.data(), word.size() - (offloads ? kOffload.size() : 0));
  for (const StrategyName& known : strategies())
    if (stem == known.name || std::count(known.spellings.begin(), known.spellings.end(), stem) > 0)
      return std::string(known.name) + std::string(offloads ? kOffload : "");
  return std::string(name);
}

std::string normalise_flag(std::string_view name) {
  const std::optional<bool> flag = parse_bool(name);
  if (flag) return *flag ? "true" : "false";
  return std::string(name);
}

size_t index_of_word(std::string_view word, std::span<const std::string_view> known) {
  const auto found = std::ranges::find(known, word);
  if (found == known.end())
    throw UserError("\"{}\" is not one of {}", word, fmt::join(known, ", "));
  return static_cast<size_t>(found - known.begin());
}

}  // namespace snug::recipe
