// Reads small kernel files (one value, or lines of names and values), and from them the limits of
// this process's control group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace snug::machine {

// The file's text; empty if it does not exist or cannot be read.
std::string kernel_text(const std::filesystem::path& path);

// Its first word as a number; empty if it is not one ("max").
std::optional<int64_t> kernel_number(const std::filesystem::path& path);

// The first number after `name` (including its colon, if the file has one) at the start of a line.
std::optional<int64_t> number_behind(std::string_view text, std::string_view name);

// The trimmed text after `name` and a colon at the start of a line.
std::string words_behind(std::string_view text, std::string_view name);

// A control group of version 2, or of version 1.
struct ControlGroup {
  std::optional<int64_t> limit;   // bytes: the smallest of this group and its parents
  std::optional<int64_t> in_use;  // bytes used in the group that sets the limit, else in its own
  std::optional<int64_t> out_of_memory_kills;
  std::optional<double> processors;  // CPU quota in cores; empty: no quota
};

// `root` contains proc/self/cgroup and sys/fs/cgroup: "/" except in tests.
ControlGroup control_group(const std::filesystem::path& root);

}  // namespace snug::machine
