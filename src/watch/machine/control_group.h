// This process's control group: its limits, and out-of-memory kills. Version 2, and version 1 for
// memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace snug::machine {

struct ControlGroup {
  std::optional<int64_t> limit;   // bytes: the smallest of this group and those above it
  std::optional<int64_t> in_use;  // bytes, of the group that has that limit; else of its own
  std::optional<int64_t> out_of_memory_kills;
  std::optional<double> processors;  // whose time it may use, where that is limited
};

// `root` holds proc/self/cgroup and sys/fs/cgroup: "/" except in tests.
ControlGroup control_group(const std::filesystem::path& root);

}  // namespace snug::machine
