// SPDX-License-Identifier: Apache-2.0
#include "watch/machine/kernel_files.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace snug::machine {
namespace {

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::optional<int64_t> number_at_start(std::string_view text) {
  text = without_blanks(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The text after `name` in the first line that begins with it.
std::string_view rest_of_line(std::string_view text, std::string_view name) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(name)) {
      const std::string_view rest = line.substr(name.size());
      if (rest.empty() || rest.front() == ' ' || rest.front() == '\t' || rest.front() == ':')
        return rest;
    }
    at = end + 1;
  }
  return {};
}

}  // namespace

std::string kernel_text(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  return text.str();
}

std::optional<int64_t> kernel_number(const std::filesystem::path& path) {
  return number_at_start(kernel_text(path));
}

std::optional<int64_t> number_behind(std::string_view text, std::string_view name) {
  return number_at_start(rest_of_line(text, name));
}

std::string words_behind(std::string_view text, std::string_view name) {
  std::string_view rest = without_blanks(rest_of_line(text, name));
  if (!rest.starts_with(':')) return {};
  return std::string(without_blanks(rest.substr(1)));
}

namespace {

namespace fs = std::filesystem;

// File names of the two versions.
struct Layout {
  fs::path mount;
  const char *limit, *in_use, *events;
};

Layout version_2(const fs::path& root) {
  return {root / "sys/fs/cgroup", "memory.max", "memory.current", "memory.events"};
}
Layout version_1(const fs::path& root) {
  return {root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
          "memory.oom_control"};
}

// In version 1 a number close to 2^63 means no limit.
constexpr int64_t kNoLimit = int64_t{1} << 60;

// Lines are "number:controllers:path"; version 2 has number 0 and no controllers, here "".
std::optional<std::string> path_of(const std::string& groups, const std::string& controller) {
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + controller + ",") != controllers.npos)
      return line.substr(second + 1);
  }
  return std::nullopt;
}

// The group's folder and its parents up to the mount. In a container the mount is the container's
// own group although the path may be the host's, and has no such `file`; then the mount alone.
std::vector<fs::path> folders_up(const fs::path& mount, const std::string& path, const char* file) {
  fs::path folder = mount / fs::path(path).relative_path();
  if (!fs::exists(folder / file)) folder = mount;
  std::vector<fs::path> folders = {folder};
  while (folder != mount && folder != folder.parent_path())
    folders.push_back(folder = folder.parent_path());
  return folders;
}

// "200000 100000": microseconds in each period, or "max 100000".
std::optional<double> processors_of(const fs::path& folder) {
  const std::string text = kernel_text(folder / "cpu.max");
  const std::optional<int64_t> quota = kernel_number(folder / "cpu.max");
  const size_t blank = text.find(' ');
  if (!quota || blank == text.npos) return std::nullopt;
  const double period = std::strtod(text.c_str() + blank, nullptr);
  if (period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / period;
}

// The same for version 1, whose processor time has a separate tree; a quota of -1 means none.
std::optional<double> processors_of_version_1(const fs::path& root, const std::string& path) {
  std::optional<double> smallest;
  for (const fs::path& folder : folders_up(root / "sys/fs/cgroup/cpu", path, "cpu.cfs_quota_us")) {
    const std::optional<int64_t> quota = kernel_number(folder / "cpu.cfs_quota_us");
    const std::optional<int64_t> period = kernel_number(folder / "cpu.cfs_period_us");
    if (quota && period && *quota > 0 && *period > 0) {
      const double share = static_cast<double>(*quota) / static_cast<double>(*period);
      smallest = std::min(smallest.value_or(share), share);
    }
  }
  return smallest;
}

ControlGroup read_tree(const Layout& layout, const std::string& path) {
  ControlGroup group;
  const std::vector<fs::path> folders = folders_up(layout.mount, path, layout.in_use);
  group.in_use = kernel_number(folders.front() / layout.in_use);
  group.out_of_memory_kills =
      number_behind(kernel_text(folders.front() / layout.events), "oom_kill");
  for (const fs::path& folder : folders) {
    const std::optional<int64_t> limit = kernel_number(folder / layout.limit);
    if (limit && *limit < kNoLimit && (!group.limit || *limit < *group.limit)) {
      group.limit = limit;
      group.in_use = kernel_number(folder / layout.in_use);
    }
    if (const auto share = processors_of(folder);
        share && (!group.processors || *share < *group.processors))
      group.processors = share;
  }
  return group;
}

}  // namespace

ControlGroup control_group(const fs::path& root) {
  const std::string groups = kernel_text(root / "proc/self/cgroup");
  ControlGroup group;
  if (const auto path = path_of(groups, "memory"); path && fs::exists(version_1(root).mount))
    group = read_tree(version_1(root), *path);
  else if (const auto path = path_of(groups, ""))
    group = read_tree(version_2(root), *path);
  if (const auto path = path_of(groups, "cpu"); path && !group.processors)
    group.processors = processors_of_version_1(root, *path);
  return group;
}

}  // namespace snug::machine
