// SPDX-License-Identifier: Apache-2.0
#include "recipe/differences.h"

#include "base/error.h"
#include "recipe/options/rows.h"

namespace snug::recipe {

std::map<std::string, std::string> differences(Recipe from, Recipe to) {
  const std::vector<Row> before = recipe_rows(from);
  const std::vector<Row> after = recipe_rows(to);
  std::map<std::string, std::string> values;
  for (size_t i = 0; i < before.size(); ++i) {
    const std::string value = plain_text(after[i]);
    if (plain_text(before[i]) != value) values[after[i].key] = value;
  }
  return values;
}

void apply_differences(Recipe& recipe, const std::map<std::string, std::string>& values) {
  Recipe defaults;
  const std::vector<Row> rows = recipe_rows(recipe);
  const std::vector<Row> fallback = recipe_rows(defaults);
  for (const auto& [key, value] : values) {
    const Row* row = find_row(rows, key);
    SNUG_CHECK(row != nullptr, "no key {}", key);
    const std::string fault =
        store(*row, {.kind = Value::Kind::Text, .text = value}, *find_row(fallback, key));
    SNUG_CHECK(fault.empty(), "{} = {}: {}", key, value, fault);
  }
}

}  // namespace snug::recipe
