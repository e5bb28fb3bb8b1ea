// SPDX-License-Identifier: Apache-2.0
#include "recipe/techniques/checkpointing.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "recipe/numbers.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kEvery = "every:";

std::optional<int64_t> period_of(std::string_view choice) {
  if (!choice.starts_with(kEvery)) return std::nullopt;
  const std::optional<int64_t> period = parse_int(choice.substr(kEvery.size()));
  return period.value_or(0) > 0 ? period : std::nullopt;
}

using Span = std::pair<int64_t, int64_t>;  // both ends included

std::optional<Span> span_of(std::string_view item) {
  const size_t dash = item.find('-');
  const std::optional<int64_t> first = parse_int(item.substr(0, dash));
  const std::optional<int64_t> last =
      dash == std::string_view::npos ? first : parse_int(item.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first) return std::nullopt;
  return Span{*first, *last};
}

std::optional<std::vector<Span>> list_of(std::string_view choice) {
  std::vector<Span> spans;
  for (size_t begin = 0; begin <= choice.size();) {
    const size_t end = std::min(choice.find(',', begin), choice.size());
    const std::optional<Span> span = span_of(choice.substr(begin, end - begin));
    if (!span) return std::nullopt;
    spans.push_back(*span);
    begin = end + 1;
  }
  return spans;
}

}  // namespace

std::optional<Checkpointing> read_checkpointing(const std::string& choice) {
  if (choice == "none") return Checkpointing::None;
  if (choice == "all") return Checkpointing::All;
  if (choice == "selective") return Checkpointing::Selective;
  if (period_of(choice) || list_of(choice)) return Checkpointing::Blocks;
  return std::nullopt;
}

Checkpointing checkpointing_of(const Recipe& recipe) {
  const std::optional<Checkpointing> kind = read_checkpointing(recipe.activation_checkpointing);
  SNUG_CHECK(kind.has_value(), "activation_checkpointing = {}", recipe.activation_checkpointing);
  return *kind;
}

std::vector<bool> repeated_blocks(const Recipe& recipe, int64_t num_blocks) {
  return chosen_blocks(recipe.activation_checkpointing, num_blocks);
}

std::vector<bool> chosen_blocks(const std::string& choice, int64_t num_blocks) {
  std::vector<bool> chosen(static_cast<size_t>(num_blocks), choice == "all");
  if (const std::optional<int64_t> period = period_of(choice))
    for (int64_t i = 0; i < num_blocks; i += *period) chosen[static_cast<size_t>(i)] = true;
  for (const auto& [first, last] : list_of(choice).value_or(std::vector<Span>{})) {
    if (last >= num_blocks)
      throw UserError("activation_checkpointing = {}: the model has blocks 0 to {}", choice,
                      num_blocks - 1);
    for (int64_t i = first; i <= last; ++i) chosen[static_cast<size_t>(i)] = true;
  }
  return chosen;
}

}  // namespace snug::recipe
