// SPDX-License-Identifier: Apache-2.0
#include "recipe/selection.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
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

namespace {

const std::vector<std::string>& known_parts() {
  static const std::vector<std::string> kParts{"vision", "qformer", "projection", "language"};
  return kParts;
}

}  // namespace

std::vector<std::string> part_names(const std::string& choice) {
  std::vector<std::string> names;
  if (choice == "all") return names;
  for (size_t begin = 0; begin <= choice.size();) {
    const size_t end = std::min(choice.find(',', begin), choice.size());
    std::string name = choice.substr(begin, end - begin);
    std::erase(name, ' ');
    if (!name.empty()) names.push_back(std::move(name));
    begin = end + 1;
  }
  return names;
}

std::string part_names_fault(const std::string& choice) {
  if (choice == "all") return "";
  const std::vector<std::string> names = part_names(choice);
  if (names.empty())
    return fmt::format("model.train_parts is empty; use all, or some of {}",
                       fmt::join(known_parts(), ", "));
  for (const std::string& name : names) {
    if (std::ranges::find(known_parts(), name) != known_parts().end()) continue;
    const std::string near = nearest_name(name, known_parts());
    return fmt::format("model.train_parts = {}: there is no component {}{}; use all, or some of {}",
                       choice, name, near.empty() ? "" : fmt::format(", did you mean {}?", near),
                       fmt::join(known_parts(), ", "));
  }
  return "";
}

}  // namespace snug::recipe
