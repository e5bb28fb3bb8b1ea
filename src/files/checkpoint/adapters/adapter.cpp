// Finds the modules that a configuration adapts, by PEFT's rules.
// SPDX-License-Identifier: Apache-2.0
#include "files/checkpoint/adapters/adapter.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "text/tokenizer/regex.h"

namespace snug::checkpoint {
namespace {

// PEFT's name for every linear layer but the head.
constexpr const char* kAllLinear = "all-linear";
constexpr const char* kHead = "lm_head";

bool matches_whole(const std::string& pattern, const std::string& name, const char* key) {
  // In a group, since the pattern may have alternatives.
  const tokenizer::Regex regex("\\A(?:" + pattern + ")\\z",
                               std::string("adapter_config.json: ") + key);
  return regex.find(name, 0).first == 0;
}

bool is_in(const ModuleChoice& choice, const std::string& module, const char* key) {
  if (choice.pattern == kAllLinear) return module != kHead;
  if (!choice.pattern.empty()) return matches_whole(choice.pattern, module, key);
  return std::ranges::any_of(choice.names, [&](const std::string& name) {
    return module == name || module.ends_with("." + name);
  });
}

// The layer number in "model.layers.3.mlp": the first number after one of `words`, or, without
// words, after any two name components, as in PEFT.
std::optional<int64_t> layer_of(const std::string& module, const std::vector<std::string>& words) {
  int names_before = 0;
  for (size_t begin = 0, end = module.find('.'); end != std::string::npos;
       begin = end + 1, end = module.find('.', begin), ++names_before) {
    int64_t number = 0;
    const char *first = module.data() + begin, *last = module.data() + end;
    const auto [stop, fault] = std::from_chars(first, last, number);
    if (first == last || fault != std::errc() || stop != last || names_before == 0) continue;
    const std::string before = module.substr(0, begin - 1);
    const bool counts =
        words.empty() ? names_before >= 2 : std::ranges::any_of(words, [&](const auto& word) {
          return before == word || before.ends_with("." + word);
        });
    if (counts) return number;
  }
  return {};
}

// The value of the first pattern that matches the end of the module's name.
template <class Value>
Value by_pattern(const std::vector<std::pair<std::string, Value>>& patterns,
                 const std::string& module, Value otherwise, const char* key) {
  for (const auto& [pattern, value] : patterns)
    if (matches_whole("(?:.*\\.)?(?:" + pattern + ")", module, key)) return value;
  return otherwise;
}

}  // namespace

bool adapts(const AdapterConfig& config, const std::string& module) {
  if (is_in(config.exclude_modules, module, "exclude_modules")) return false;
  if (config.target_modules.empty()) return true;
  if (!is_in(config.target_modules, module, "target_modules")) return false;
  const auto& layers = config.layers_to_transform;
  const bool named_whole = std::ranges::count(config.target_modules.names, module) > 0;
  if (layers.empty() || !config.target_modules.pattern.empty() || named_whole) return true;
  const std::optional<int64_t> layer = layer_of(module, config.layers_pattern);
  return layer && std::ranges::count(layers, *layer) > 0;
}

int64_t rank_of(const AdapterConfig& config, const std::string& module) {
  return by_pattern(config.rank_pattern, module, config.r, "rank_pattern");
}

double scaling_of(const AdapterConfig& config, const std::string& module) {
  const double alpha = by_pattern(config.alpha_pattern, module, config.lora_alpha, "alpha_pattern");
  const auto rank = static_cast<double>(rank_of(config, module));
  return alpha / (config.use_rslora ? std::sqrt(rank) : rank);
}

}  // namespace snug::checkpoint
