// Reads sweeps (one row per value of a growing option) and searches (for the largest value that
// fits, while the lab runs).
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lab/suite/suite_fields.h"
#include "lab/suite/suite_rows.h"
#include "recipe/numbers.h"

namespace snug::lab {
namespace {

using recipe::YamlNode;

constexpr size_t kMostValues = 200;
constexpr double kLargestValue = 1e9;

std::optional<int64_t> whole_number(const YamlNode& node, std::string_view what, Faults& faults) {
  const auto text = text_of(node, what, faults);
  if (!text) return std::nullopt;
  const auto number = recipe::parse_int(*text);
  if (number && *number >= 1 && static_cast<double>(*number) <= kLargestValue) return number;
  faults.add(node.line, fmt::format("{}: \"{}\" is not a whole number from 1 to {:.0f}", what,
                                    text->substr(0, 80), kLargestValue));
  return std::nullopt;
}

// {from: 1, factor: 2, to: 512}, or {from: 1, step: 1, to: 9}.
std::vector<std::string> values_of_range(const YamlNode& node, Faults& faults) {
  Fields fields(node, "values", faults);
  const auto read = [&](std::string_view key) -> std::optional<int64_t> {
    const YamlNode* entry = fields.take_said(key);
    return entry == nullptr ? std::nullopt : whole_number(*entry, key, faults);
  };
  const auto from = read("from"), to = read("to"), factor = read("factor"), step = read("step");
  fields.finish();
  std::vector<std::string> values;
  if (!from || !to || !factor == !step || (factor && *factor < 2)) {
    faults.add(
        node.line,
        "values: must be a list, {from: 1, factor: 2, to: 512} or {from: 1, step: 1, to: 9}");
    return values;
  }
  for (int64_t value = *from; value <= *to && values.size() <= kMostValues;
       value = factor ? value * *factor : value + *step)
    values.push_back(fmt::format("{}", value));
  return values;
}

std::vector<std::string> values_of(const YamlNode& node, Faults& faults) {
  std::vector<std::string> values;
  if (node.kind == YamlNode::Kind::Map) {
    values = values_of_range(node, faults);
  } else if (node.kind == YamlNode::Kind::List) {
    for (const YamlNode& item : node.items)
      if (number_of(item, "values", faults)) values.push_back(item.text);
  }
  if (values.empty()) faults.add(node.line, "values: empty; give a list such as [1, 2, 4, 8]");
  if (values.size() > kMostValues)
    faults.add(node.line, fmt::format("values: more than {}; give fewer", kMostValues));
  values.resize(std::min(values.size(), kMostValues));
  return values;
}

// "train.micro_batch_size" -> "batch size", or the last word of the key.
std::string spoken(const std::string& option) {
  if (option_key(option) == "train.micro_batch_size") return "batch";
  if (option_key(option) == "train.max_seq_length") return "tokens";
  std::string word = option.substr(option.rfind('.') + 1);
  std::replace(word.begin(), word.end(), '_', ' ');
  return word;
}

}  // namespace

// The option that grows and those that grow with it.
struct RowReader::Growth {
  std::string over;
  std::vector<std::string> together;
  int line = 0;

  void set(Row& row, const std::string& value) const {
    Settings options{{over, value}};
    for (const std::string& key : together) options.emplace_back(key, value);
    lay_over(row.options, options);
    row.value = recipe::parse_float(value);
  }
};

RowReader::Growth RowReader::read_growth(Fields& fields) {
  Growth growth{.over = {}, .together = {}, .line = fields.line()};
  fields.read("over", growth.over);
  fields.read_list("together", growth.together);
  std::vector<std::string> keys = growth.together;
  if (growth.over.empty())
    fields.add("over",
               fmt::format("{}: needs over, the option to vary, as in train.micro_batch_size",
                           fields.what()));
  else if (growth.over != "model")
    keys.push_back(growth.over);
  // Checked as if they were set to 1 or more; what the values do is checked with the rows.
  for (const std::string& key : keys) {
    const YamlNode one{.kind = YamlNode::Kind::Scalar, .line = growth.line, .text = "64"};
    read_options({.kind = YamlNode::Kind::Map, .line = growth.line, .entries = {{key, one}}},
                 folder(), TakingBack::Refused, faults_);
  }
  return growth;
}

void RowReader::read_sweeps(const YamlNode& list) {
  if (list.kind != YamlNode::Kind::List)
    return faults_.add(list.line, "sweeps: must be a list of sweeps, each with an id");
  for (const YamlNode& node : list.items) read_sweep(node);
}

std::vector<std::string> RowReader::read_values(Fields& fields) {
  if (const YamlNode* values = fields.take_said("values")) return values_of(*values, faults_);
  fields.add("id", "a sweep needs values, a list such as [1, 2, 4, 8]");
  return {};
}

void RowReader::read_sweep(const YamlNode& node) {
  Fields fields(node, "a sweep", faults_);
  Group group;
  fields.read("id", group.id);
  fields.read("title", group.title);
  Row base = row_from(fields);
  read_common(fields, base);
  read_remarks(fields, base);
  const Growth growth = read_growth(fields);
  group.over = growth.over;
  if (growth.over == "model")
    fields.add(
        "over",
        "over: a sweep varies an option; vary models with an axis of a matrix, or with a search");
  std::string row_id = "{id}-{value}", row_title = "{title}, {over} {value}";
  fields.read("row_id", row_id);
  fields.read("row_title", row_title);
  const std::vector<std::string> values = read_values(fields);
  OutcomesByName outcomes(fields);
  base.group = group.id;
  if (group.title.empty()) group.title = group.id;
  if (add_group(group, node.line))
    for (const std::string& value : values) {
      Row row = base;
      growth.set(row, value);
      const std::vector<std::pair<std::string, std::string>> names = {
          {"id", group.id}, {"title", group.title}, {"value", value}, {"over", spoken(group.over)}};
      row.id = filled(row_id, names, node.line, faults_);
      row.title = filled(row_title, names, node.line, faults_);
      outcomes.apply(value, row);
      // Each is described by its change from the previous one.
      base.from = row.id;
      add_row(std::move(row), node.line);
    }
  outcomes.finish();
  fields.finish();
}

void RowReader::read_searches(const YamlNode& list) {
  if (list.kind != YamlNode::Kind::List)
    return faults_.add(list.line, "searches: must be a list of searches, each with an id");
  for (const YamlNode& node : list.items) read_search(node);
}

void RowReader::read_search(const YamlNode& node) {
  Fields fields(node, "a search", faults_);
  Group group;
  group.kind = Group::Kind::Search;
  fields.read("id", group.id);
  fields.read("title", group.title);
  group.base = row_from(fields);
  read_common(fields, group.base);
  const Growth growth = read_growth(fields);
  group.over = growth.over;
  group.together = growth.together;
  read_bounds(fields, group);
  fields.finish();
  group.base.group = group.id;
  if (group.title.empty()) group.title = group.id;
  add_group(std::move(group), node.line);
}

void RowReader::read_bounds(Fields& fields, Group& group) {
  const YamlNode* between = fields.take_said("between");
  if (group.over == "model") {
    fields.read_list("models", group.models);
    if (group.models.empty()) group.models = models_;
    for (const std::string& model : group.models) {
      Row row;
      set_model(model, fields.line(), row);
    }
    if (group.models.empty()) fields.add("over", "over: model, but the suite has no models");
    group.largest = std::max<int64_t>(1, static_cast<int64_t>(group.models.size()));
    return;
  }
  if (between != nullptr && between->kind == YamlNode::Kind::List && between->items.size() == 2) {
    const auto low = whole_number(between->items[0], "between", faults_);
    const auto high = whole_number(between->items[1], "between", faults_);
    if (low && high && *low <= *high) {
      group.smallest = *low;
      group.largest = *high;
      return;
    }
    if (!low || !high) return;
  }
  fields.add(
      "between",
      fmt::format("search {}: needs between, the smallest and the largest value, as in [1, 4096]",
                  group.id));
}

Row search_row(const Group& group, int64_t value) {
  Row row = group.base;
  row.value = static_cast<double>(value);
  if (group.over == "model") {
    row.model = group.models.at(static_cast<size_t>(value - 1));
    row.id = fmt::format("{}-{}", group.id, row.model);
    row.title = fmt::format("{}: {}", group.title, row.model);
    return row;
  }
  Settings options{{group.over, fmt::format("{}", value)}};
  for (const std::string& key : group.together) options.emplace_back(key, fmt::format("{}", value));
  // The tried value overrides the options of a mode.
  for (Settings* layer : {&row.options, &row.plan_options, &row.run_options, &row.scaled_options})
    lay_over(*layer, options);
  row.id = fmt::format("{}-{}", group.id, value);
  row.title = fmt::format("{}: {} {}", group.title, spoken(group.over), value);
  return row;
}

}  // namespace snug::lab
