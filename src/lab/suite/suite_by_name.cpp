// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite_by_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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

}  // namespace snug::lab
