// SPDX-License-Identifier: Apache-2.0
#include "config/recipe.h"

#include "config/rows.h"

namespace snug::config {

std::optional<std::string> Recipe::offload_folder() const {
  static constexpr std::string_view kDisk = "disk:";
  if (!optimizer_offload.starts_with(kDisk)) return std::nullopt;
  return optimizer_offload.substr(kDisk.size());
}

bool Recipe::same_values(const Recipe& other) const {
  Recipe mine = *this, theirs = other;
  if (lora.enabled != other.lora.enabled) return false;
  const std::vector<Row> left = recipe_rows(mine), right = recipe_rows(theirs);
  for (size_t i = 0; i < left.size(); ++i) {
    // What a run without adapters would do with adapters' settings is nothing.
    const bool counts = !left[i].secret && (lora.enabled || !left[i].lora_only);
    if (counts && yaml_text(left[i]) != yaml_text(right[i])) return false;
  }
  return true;
}

}  // namespace snug::config
