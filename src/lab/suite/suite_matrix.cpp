// A matrix: one row for each combination of its axes, the last axis changing fastest.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lab/suite/suite_fields.h"
#include "lab/suite/suite_rows.h"

namespace snug::lab {
namespace {

using recipe::YamlNode;

const YamlNode* several_expectations(Fields& fields) {
  const YamlNode* node = fields.take_said("expect");
  return node == nullptr || is_one_expectation(*node) ? nullptr : node;
}

}  // namespace

ByName::ByName(const YamlNode* node, std::string key, Faults& faults)
    : node_(node), key_(std::move(key)), faults_(faults) {
  if (node_ == nullptr || node_->kind == YamlNode::Kind::Map) return;
  faults_.add(node_->line, fmt::format("{}: must be a mapping with an entry for each row", key_));
  node_ = nullptr;
}

const YamlNode* ByName::of(std::string_view name) const {
  if (node_ == nullptr) return nullptr;
  const YamlNode* fallback = nullptr;
  for (const auto& [key, value] : node_->entries) {
    if (key == name) return &value;
    if (key == "default") fallback = &value;
  }
  return fallback;
}

void ByName::finish(const std::vector<std::string>& names) const {
  if (node_ == nullptr || names.empty()) return;
  for (const auto& [key, value] : node_->entries)
    if (key != "default" && std::find(names.begin(), names.end(), key) == names.end())
      faults_.add(value.line,
                  fmt::format("{}: {} is not one of {}", key_, key, fmt::join(names, ", ")));
}

OutcomesByName::OutcomesByName(Fields& fields)
    : expect_(several_expectations(fields), "expect", fields.faults()),
      published_(fields.take_said("published"), "published", fields.faults()),
      notes_(fields.take_said("notes_of"), "notes_of", fields.faults()),
      explained_(fields.take_said("explained_of"), "explained_of", fields.faults()),
      faults_(fields.faults()) {
  const YamlNode* expect = fields.take_said("expect");
  if (expect != nullptr && is_one_expectation(*expect)) expect_all_ = expect;
}

void OutcomesByName::apply(const std::string& name, Row& row) {
  names_.push_back(name);
  const YamlNode* expect = expect_all_ != nullptr ? expect_all_ : expect_.of(name);
  if (expect != nullptr) read_expected(*expect, row, faults_);
  if (const YamlNode* published = published_.of(name))
    row.published = read_published(*published, faults_);
  if (const YamlNode* note = notes_.of(name))
    if (const auto text = text_of(*note, "notes_of", faults_)) row.notes.push_back(*text);
  if (const YamlNode* why = explained_.of(name))
    if (const auto text = text_of(*why, "explained_of", faults_)) row.explained.push_back(*text);
}

void OutcomesByName::finish() const {
  for (const ByName* each : {&expect_, &published_, &notes_, &explained_}) each->finish(names_);
}

std::string filled(const std::string& pattern,
                   const std::vector<std::pair<std::string, std::string>>& values, int line,
                   Faults& faults) {
  std::string out;
  for (size_t at = 0; at < pattern.size();) {
    const size_t close = pattern[at] == '{' ? pattern.find('}', at) : std::string::npos;
    if (close == std::string::npos) {
      out += pattern[at++];
      continue;
    }
    const std::string name = pattern.substr(at + 1, close - at - 1);
    const auto found = std::find_if(values.begin(), values.end(),
                                    [&](const auto& value) { return value.first == name; });
    if (found != values.end()) {
      out += found->second;
    } else {
      std::vector<std::string> known;
      for (const auto& [key, value] : values) known.push_back(key);
      faults.add(line, fmt::format("\"{}\": there is no {{{}}} here; the names are {}", pattern,
                                   name, fmt::join(known, ", ")));
    }
    at = close + 1;
  }
  return out;
}

namespace {

using recipe::YamlNode;

constexpr size_t kMostCombinations = 2000;

}  // namespace

struct RowReader::Axis {
  struct Value {
    std::string name;
    OptionLayer options;
  };
  std::string name;
  int line = 0;
  bool is_model = false;
  std::vector<Value> values;
};

// An axis is a mapping of names to options, or a list of models or of values of the option that the
// axis is named after.
RowReader::Axis RowReader::read_axis(const std::string& name, const YamlNode& node) {
  Axis axis{.name = name, .line = node.line, .is_model = name == "model", .values = {}};
  if (node.kind == YamlNode::Kind::Map && !axis.is_model) {
    for (const auto& [value, options] : node.entries)
      axis.values.push_back({value, read_options(options, folder(), TakingBack::Allowed, faults_)});
  } else if (node.kind == YamlNode::Kind::List) {
    for (const YamlNode& item : node.items) {
      const auto text = text_of(item, name, faults_);
      if (!text) continue;
      if (axis.is_model) {
        axis.values.push_back({*text, {}});
        continue;
      }
      const YamlNode option{
          .kind = YamlNode::Kind::Map, .line = item.line, .entries = {{name, item}}};
      axis.values.push_back({*text, read_options(option, folder(), TakingBack::Refused, faults_)});
    }
  } else {
    faults_.add(node.line,
                fmt::format("axis {}: must be {}", name,
                            axis.is_model ? "a list of the suite's models"
                                          : "a mapping of names to options, or a list of values"));
  }
  if (axis.values.empty()) faults_.add(node.line, fmt::format("axis {} has no values", name));
  return axis;
}

void RowReader::read_matrix(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::List) return read_one_matrix(node);
  for (const YamlNode& item : node.items) read_one_matrix(item);
}

struct RowReader::Matrix {
  std::string id, title;
  Row base;
  std::vector<Axis> axes;
  size_t combinations = 1;
  int line = 0;
};

void RowReader::read_axes(Fields& fields, Matrix& matrix) {
  const YamlNode* axes = fields.take_said("axes");
  if (axes != nullptr)
    for (const auto& [name, values] : axes->entries) {
      matrix.axes.push_back(read_axis(name, values));
      matrix.combinations =
          std::min(matrix.combinations * matrix.axes.back().values.size(), kMostCombinations + 1);
    }
  if (matrix.axes.empty())
    fields.add("axes", "matrix: needs axes, as in {model: [tiny-llama], batch: {8: {…}}}");
  if (matrix.combinations > kMostCombinations)
    fields.add("axes", fmt::format("matrix: more than {} rows; remove values from an axis",
                                   kMostCombinations));
  if (matrix.axes.empty() || matrix.combinations > kMostCombinations) matrix.combinations = 0;
}

// The k-th combination; the last axis changes fastest. Its first value is the row that the others
// are compared with.
Row RowReader::combined(const Matrix& matrix, size_t k) {
  Row row = matrix.base;
  std::vector<std::pair<std::string, std::string>> names, names_of_first;
  size_t stride = matrix.combinations;
  for (const Axis& axis : matrix.axes) {
    stride /= axis.values.size();
    const Axis::Value& value = axis.values[k / stride % axis.values.size()];
    if (axis.is_model) set_model(value.name, axis.line, row);
    lay_over(row.options, value.options);
    names.emplace_back(axis.name, value.name);
    names_of_first.emplace_back(names.back());
  }
  names_of_first.back().second = matrix.axes.back().values[0].name;
  row.id = filled(matrix.id, names, matrix.line, faults_);
  row.title = filled(matrix.title, names, matrix.line, faults_);
  const std::string first = filled(matrix.id, names_of_first, matrix.line, faults_);
  if (first != row.id) row.from = first;
  return row;
}

void RowReader::read_one_matrix(const YamlNode& node) {
  Fields fields(node, "matrix", faults_);
  Matrix matrix{.id = {}, .title = {}, .base = row_from(fields), .axes = {}, .line = node.line};
  fields.read("id", matrix.id);
  fields.read("title", matrix.title);
  read_common(fields, matrix.base);
  read_remarks(fields, matrix.base);
  read_axes(fields, matrix);
  if (matrix.id.empty())
    for (const Axis& axis : matrix.axes)
      matrix.id += fmt::format("{}{{{}}}", matrix.id.empty() ? "" : "-", axis.name);
  OutcomesByName outcomes(fields);
  for (size_t k = 0; k < matrix.combinations; ++k) {
    Row row = combined(matrix, k);
    outcomes.apply(row.id, row);
    add_row(std::move(row), matrix.line);
  }
  outcomes.finish();
  fields.finish();
}

}  // namespace snug::lab
