// Faults are collected and thrown together, so that a recipe is mended in one go.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace snug::recipe {

// One fault stands alone; several become a list, of the first ones where they are very many.
// Nothing happens when there is none.
inline void throw_faults(std::vector<std::string> faults, const std::string& where) {
  const std::string front = where.empty() ? "" : where + ": ";
  if (faults.size() == 1) throw UserError("{}{}", front, faults[0]);
  constexpr size_t kMostShown = 50;
  const size_t count = faults.size();
  if (count > kMostShown) {
    faults.resize(kMostShown);
    faults.push_back(fmt::format("and {} more", count - kMostShown));
  }
  if (count > 0) throw UserError("{}{} faults:\n  - {}", front, count, fmt::join(faults, "\n  - "));
}

}  // namespace snug::recipe
