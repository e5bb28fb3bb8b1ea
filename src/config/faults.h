// Faults are collected and thrown together, so that a recipe is mended in one go.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace snug::config {

// One fault stands alone; several become a list. Nothing happens when there is none.
inline void throw_faults(const std::vector<std::string>& faults, const std::string& where) {
  const std::string front = where.empty() ? "" : where + ": ";
  if (faults.size() == 1) throw UserError("{}{}", front, faults[0]);
  if (!faults.empty())
    throw UserError("{}{} faults:\n  - {}", front, faults.size(), fmt::join(faults, "\n  - "));
}

}  // namespace snug::config
