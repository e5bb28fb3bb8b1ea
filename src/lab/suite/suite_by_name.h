// Several rows described together, by a matrix or a sweep: what is said of each one by its name,
// and ids and titles made from a pattern.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/suite/suite.h"
#include "lab/suite/suite_fields.h"
#include "recipe/yaml.h"

namespace snug::lab {

// {key: what one of the rows has}; `default` stands for all that are not named.
class ByName {
 public:
  // Nothing is said where `node` is null.
  ByName(const recipe::YamlNode* node, std::string key, Faults& faults);
  // nullptr where nothing is said of this one.
  const recipe::YamlNode* of(std::string_view name) const;
  // Names that no row has are faults.
  void finish(const std::vector<std::string>& names) const;

 private:
  const recipe::YamlNode* node_;
  std::string key_;
  Faults& faults_;
};

// `expect` (one for all rows, or by name), `published`, `notes_of` and `explained_of`.
class OutcomesByName {
 public:
  explicit OutcomesByName(Fields& fields);
  // Describes the row that is called `name` here.
  void apply(const std::string& name, Row& row);
  void finish() const;

 private:
  const recipe::YamlNode* expect_all_ = nullptr;
  ByName expect_, published_, notes_, explained_;
  std::vector<std::string> names_;
  Faults& faults_;
};

// "{model}-b{batch}" with each {name} replaced. A name that is not there is a fault.
std::string filled(const std::string& pattern,
                   const std::vector<std::pair<std::string, std::string>>& values, int line,
                   Faults& faults);

}  // namespace snug::lab
