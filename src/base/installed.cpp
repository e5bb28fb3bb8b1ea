// SPDX-License-Identifier: Apache-2.0
#include "base/installed.h"

#include <system_error>

namespace snug {

namespace fs = std::filesystem;

fs::path program_prefix() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : program.parent_path().parent_path();
}

std::vector<fs::path> shipped_places(const fs::path& name) {
  const fs::path prefix = program_prefix();
  if (prefix.empty()) return {};
  return {prefix / "share/snug" / name, prefix / name};
}

fs::path shipped_file(const fs::path& name) {
  std::error_code error;
  if (name.empty() || name.is_absolute() || fs::exists(name, error)) return name;
  for (const fs::path& place : shipped_places(name))
    if (fs::exists(place, error)) return place;
  return name;
}

}  // namespace snug
