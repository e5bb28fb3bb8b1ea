// SPDX-License-Identifier: Apache-2.0
#include "train/startup.h"

#include <unistd.h>

#include <ctime>
#include <sstream>

#include "base/files.h"

namespace snug::train {
namespace {

double boot_clock() {
  struct timespec now {};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The kernel tells it in ticks since the machine's start, as the 22nd field; the second one, the
// program's name in brackets, may hold blanks. Now, where there is no /proc.
double process_start() {
  try {
    const std::string text = read_file("/proc/self/stat", size_t{1} << 16);
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    std::string field;
    for (int i = 3; i <= 22; ++i) fields >> field;
    return std::stod(field) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  } catch (const std::exception&) {
    return boot_clock();
  }
}

}  // namespace

double seconds_since_process_start() {
  static const double start = process_start();
  return boot_clock() - start;
}

void StartupClock::end_stage(const char* name) {
  const double now = seconds_since_process_start();
  record_.stages.emplace_back(name, now - last_);
  last_ = now;
}

void StartupClock::end_step() {
  if (record_.first_step_ended == 0) record_.first_step_ended = seconds_since_process_start();
}

}  // namespace snug::train
