// SPDX-License-Identifier: Apache-2.0
#include "data/rows/label_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/rows/row_from_json.h"
#include "data/rows/row_pictures.h"

namespace snug::data {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kLabel = "label";
// In this order: the first that a row has is its text.
constexpr const char* kTexts[] = {"text",     "prompt",  "instruction", "question",
                                  "sentence", "content", "review",      "document"};
constexpr int64_t kMostLabels = 1 << 16;

// A whole number as people write it: "7", "-1", but neither "07" nor "1.0".
std::optional<int64_t> whole_number(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [last, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc() || last != end || std::to_string(number) != text) return std::nullopt;
  return number;
}

std::string label_of(const json& value, const std::string& where) {
  if (value.is_string()) {
    // As tables write them: with blanks around, and booleans with a capital.
    std::string name(trimmed(value.get_ref<const std::string&>()));
    if (name == "True" || name == "False") return name == "True" ? "true" : "false";
    if (!name.empty()) return name;
  }
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_integer()) return value.dump();
  if (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()) &&
      std::abs(value.get<double>()) < 1e15)
    return std::to_string(static_cast<int64_t>(value.get<double>()));
  if (value.is_number())
    throw UserError(
        "{}: the label {} (column \"label\") is a number with a fraction; labels are whole numbers "
        "or names, and snug does not learn to estimate numbers",
        where, value.dump());
  throw UserError(
      "{}: the label (column \"label\") is {}; it is a whole number or a name, one to a row", where,
      shortened(value.dump(-1, ' ', false, json::error_handler_t::replace), 40));
}

// The text that is sorted, without its label.
Row text_from_json(const json& object, const Columns& columns, const std::string& where) {
  Columns plain = columns;
  plain.classes = false;
  plain.unread = nullptr;
  if (auto chat = chat_to_sort(object, plain, where)) return *std::move(chat);
  json rest = object;
  rest.erase(kLabel);
  if (is_answered(object, plain)) return row_from_json(rest, plain, where);
  for (const char* key : kTexts) {
    const json* text = field(object, key);
    if (text == nullptr) continue;
    Row row;
    row.kind = RowKind::Text;
    row.output = text_of(*text, key, where);
    const json* input = field(object, columns.input);
    if (input != nullptr && input->is_string() && !input->get_ref<const std::string&>().empty())
      row.output += "\n\n" + input->get<std::string>();
    if (row.output.empty())
      throw UserError("{}: \"{}\" is empty; a label needs a text", where, key);
    return row;
  }
  throw UserError(
      "{}: no text beside the label; a row of objective classification needs \"text\", "
      "\"messages\", "
      "\"prompt\", or a question and its answer",
      where);
}

}  // namespace

Row labelled_from_json(const json& object, const Columns& columns, const std::string& where) {
  const json* label = field(object, kLabel);
  if (label == nullptr)
    throw UserError(
        "{}: no \"label\"; a row of objective classification has a text and its label, a whole "
        "number or a name; rows without labels are for --objective sft",
        where);
  Row row = text_from_json(object, columns, where);
  row.label = label_of(*label, where);
  if (columns.labels == nullptr) return row;
  const std::optional<int64_t> number = label_number(*columns.labels, row.label);
  if (!number)
    throw UserError(
        "{}: the label \"{}\" (column \"label\") is none of those that the model has: {}", where,
        shortened(row.label, 60), listed_labels(*columns.labels));
  row.value = static_cast<double>(*number);
  return row;
}

std::vector<std::string> text_columns() { return {std::begin(kTexts), std::end(kTexts)}; }

std::vector<std::string> label_names(std::span<const Row> rows, const std::string& where) {
  std::set<std::string> texts;
  std::set<int64_t> numbers;
  bool are_numbers = true;
  for (const Row& row : rows) {
    if (!texts.insert(row.label).second) continue;
    const std::optional<int64_t> number = whole_number(row.label);
    are_numbers = are_numbers && number;
    if (number) numbers.insert(*number);
  }
  if (texts.size() < 2)
    throw UserError("{}: all rows have the label {}; there is nothing to learn with fewer than two",
                    where, texts.empty() ? "(none)" : "\"" + shortened(*texts.begin(), 60) + "\"");
  std::vector<std::string> names;
  if (!are_numbers) {
    names.assign(texts.begin(), texts.end());
  } else if (*numbers.begin() == 0) {
    for (int64_t i = 0; i <= std::min(*numbers.rbegin(), kMostLabels); ++i)
      names.push_back(std::to_string(i));
  } else {
    for (const int64_t number : numbers) names.push_back(std::to_string(number));
  }
  if (std::ssize(names) > kMostLabels)
    throw UserError(
        "{}: {} labels or more, and at most {} are supported; are these numbers to be "
        "estimated? snug sorts texts by a few labels",
        where, kMostLabels, kMostLabels);
  return names;
}

std::optional<int64_t> label_number(const std::vector<std::string>& names,
                                    const std::string& label) {
  const auto found = std::ranges::find(names, label);
  if (found != names.end()) return found - names.begin();
  const std::optional<int64_t> number = whole_number(label);
  const bool has_numbers = std::ranges::any_of(
      names, [](const std::string& name) { return whole_number(name).has_value(); });
  if (!number || has_numbers || *number < 0 || *number >= std::ssize(names)) return std::nullopt;
  return number;
}

std::string listed_labels(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  std::vector<std::string> shown;
  for (const std::string& name : std::span(names).first(std::min(kShown, names.size())))
    shown.push_back(shortened(name, 40));
  return names.size() > kShown ? fmt::format("{}, … ({})", fmt::join(shown, ", "), names.size())
                               : fmt::format("{}", fmt::join(shown, ", "));
}

double margin_of(const json& object, const std::string& where) {
  const json* margin = field(object, "margin");
  if (margin == nullptr) return 0;
  double value = 0;
  if (margin->is_number()) {
    value = margin->get<double>();
  } else if (margin->is_string()) {  // as CSV has numbers
    const auto& text = margin->get_ref<const std::string&>();
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (fault != std::errc() || end != text.data() + text.size())
      value = std::numeric_limits<double>::quiet_NaN();
  } else {
    value = std::numeric_limits<double>::quiet_NaN();
  }
  if (!std::isfinite(value))
    throw UserError(
        "{}: \"margin\" is {}; it is a number, by how much the chosen answer shall be above", where,
        shortened(margin->dump(-1, ' ', false, json::error_handler_t::replace), 40));
  return value;
}

}  // namespace snug::data
