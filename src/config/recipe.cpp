// SPDX-License-Identifier: Apache-2.0
#include "config/recipe.h"

#include "config/names.h"
#include "config/rows.h"

namespace snug::config {

bool Recipe::same_values(const Recipe& other) const {
  Recipe mine = *this, theirs = other;
  // What a run without adapters would do with adapters' settings is nothing.
  if (!mine.lora.enabled && !theirs.lora.enabled) mine.lora = theirs.lora;
  const std::vector<Row> left = recipe_rows(mine), right = recipe_rows(theirs);
  for (size_t i = 0; i < left.size(); ++i)
    if (!left[i].secret && yaml_text(left[i]) != yaml_text(right[i])) return false;
  return mine.lora.enabled == theirs.lora.enabled;
}

}  // namespace snug::config
