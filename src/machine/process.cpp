// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <sstream>
#include <vector>

#include "machine/kernel_files.h"
#include "machine/machine.h"

namespace snug::machine {

// The second field of /proc/PID/stat, the program's name in brackets, may hold blanks: counting
// begins behind it, with the third.
std::optional<ProcessUse> process_use(int64_t pid) {
  const std::string text = kernel_text(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = text.rfind(')');
  if (pid <= 0 || name_end == text.npos) return std::nullopt;
  std::istringstream words(text.substr(name_end + 1));
  std::vector<std::string> fields(3);
  for (std::string word; words >> word;) fields.push_back(word);
  constexpr size_t kState = 3, kUser = 14, kSystem = 15, kThreads = 20, kStart = 22, kResident = 24;
  if (fields.size() <= kResident || fields[kState] == "Z" || fields[kState] == "X")
    return std::nullopt;
  const auto number = [&](size_t field) { return std::stod(fields[field]); };
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto booted =
      static_cast<double>(number_behind(kernel_text("/proc/stat"), "btime").value_or(0));
  return ProcessUse{.processor_seconds = (number(kUser) + number(kSystem)) / ticks,
                    .resident = static_cast<int64_t>(number(kResident)) * ::getpagesize(),
                    .threads = static_cast<int>(number(kThreads)),
                    .started = booted + number(kStart) / ticks};
}

}  // namespace snug::machine
