// The control group of this process: what the kernel lets it have, and what became of its
// processes. Version 2 and, where memory has its own tree, version 1.
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

// `root` holds proc/self/cgroup and sys/fs/cgroup: "/" but in tests.
ControlGroup control_group(const std::filesystem::path& root);

}  // namespace snug::machine
