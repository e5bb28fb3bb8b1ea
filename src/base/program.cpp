// SPDX-License-Identifier: Apache-2.0
#include "base/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <system_error>

#include "base/clock.h"

// As monotonic_seconds().
double snug_program_began = 0;

namespace {

// In a program without base/first_instruction.cpp, as where snug is a library, from here on.
__attribute__((constructor(101))) void note_start() {
  if (snug_program_began == 0) snug_program_began = snug::monotonic_seconds();
}

// Another one after each start of the machine.
std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace

namespace snug {

double seconds_since_program_start() { return monotonic_seconds() - snug_program_began; }

std::string program_start() { return fmt::format("{} {}", boot_id(), snug_program_began); }

void count_from(const std::string& start) {
  const size_t blank = start.find(' ');
  if (blank == start.npos || blank == 0 || start.substr(0, blank) != boot_id()) return;
  double began = 0;
  const char* end = start.data() + start.size();
  const auto [last, error] = std::from_chars(start.data() + blank + 1, end, began);
  if (error == std::errc() && last == end && began > 0 && began < snug_program_began)
    snug_program_began = began;
}

namespace fs = std::filesystem;

fs::path program_prefix() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : program.parent_path().parent_path();
}

std::vector<fs::path> shipped_places(const fs::path& name) {
  const fs::path prefix = program_prefix();
  if (prefix.empty()) return {};
  std::vector<fs::path> places{prefix / "share/snug" / name, prefix / name};
  // Tests lie deeper in the build folder.
  for (fs::path above = prefix; above.has_relative_path(); above = above.parent_path())
    if (above.filename() == "build") places.push_back(above.parent_path() / name);
  return places;
}

fs::path shipped_file(const fs::path& name) {
  std::error_code error;
  if (name.empty() || name.is_absolute() || fs::exists(name, error)) return name;
  for (const fs::path& place : shipped_places(name))
    if (fs::exists(place, error)) return place;
  return name;
}

// Longer names are cut, with or without a zero at the end: the last one stays.
std::string host_name() {
  std::array<char, 256> text{};
  return ::gethostname(text.data(), text.size() - 1) == 0 ? text.data() : "?";
}

}  // namespace snug
