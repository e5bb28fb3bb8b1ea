// SPDX-License-Identifier: Apache-2.0
#include "base/program_start.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <ctime>
#include <fstream>

#include "base/clock.h"

namespace {

double program_began = 0;  // as monotonic_seconds()

// Runs before anything else of the program and of the libraries that are linked to it, also before
// a sanitizer is ready: hence no library's function, and no instrumentation.
__attribute__((no_sanitize("address", "thread", "undefined"))) void note_start() {
  timespec now{};
  ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  program_began = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
__attribute__((section(".preinit_array"), used)) void (*const first_of_all)() = note_start;

// Another one after each start of the machine.
std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace

namespace snug {

double seconds_since_program_start() { return monotonic_seconds() - program_began; }

std::string program_start() { return fmt::format("{} {}", boot_id(), program_began); }

void count_from(const std::string& start) {
  const size_t blank = start.find(' ');
  if (blank == start.npos || blank == 0 || start.substr(0, blank) != boot_id()) return;
  double began = 0;
  const char* end = start.data() + start.size();
  const auto [last, error] = std::from_chars(start.data() + blank + 1, end, began);
  if (error == std::errc() && last == end && began > 0 && began < program_began)
    program_began = began;
}

}  // namespace snug
