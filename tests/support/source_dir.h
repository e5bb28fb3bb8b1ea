// Where the repository lies whose data and recipes a test reads: the one it was built from, or the
// folder that SNUG_SOURCE_DIR names on a machine that has only a part of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>

namespace snug::tests {

inline std::filesystem::path source_dir() {
  const char* moved = std::getenv("SNUG_SOURCE_DIR");
  return moved == nullptr ? SNUG_SOURCE_DIR : moved;
}

}  // namespace snug::tests
