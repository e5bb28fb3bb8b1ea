// SPDX-License-Identifier: Apache-2.0
#include "watch/machine/machine.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/bytes.h"
#include "watch/machine/control_group.h"
#include "watch/machine/kernel_files.h"

namespace snug::machine {

Memory memory() {
  const std::string text = kernel_text("/proc/meminfo");
  Memory memory{.total = number_behind(text, "MemTotal:").value_or(0) * kKiB,
                .available = number_behind(text, "MemAvailable:").value_or(0) * kKiB};
  const ControlGroup group = control_group("/");
  memory.limit = group.limit;
  memory.in_use = group.in_use;
  struct rlimit locked {};
  if (::getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
    memory.page_locked_limit = static_cast<int64_t>(locked.rlim_cur);
  struct statvfs shared {};
  if (::statvfs("/dev/shm", &shared) == 0)
    memory.shared_memory_size = static_cast<int64_t>(shared.f_blocks * shared.f_frsize);
  return memory;
}

std::optional<int64_t> out_of_memory_kills() {
  if (const auto kills = control_group("/").out_of_memory_kills) return kills;
  return number_behind(kernel_text("/proc/vmstat"), "oom_kill");
}

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

bool in_container() {
  std::error_code error;
  for (const char* sign : {"/.dockerenv", "/run/.containerenv"})
    if (std::filesystem::exists(sign, error)) return true;
  if (std::getenv("container") != nullptr) return true;
  const std::string first = kernel_text("/proc/1/cgroup");
  return std::ranges::any_of(std::initializer_list<const char*>{"docker", "kubepods", "lxc"},
                             [&](const char* word) { return first.find(word) != first.npos; });
}

std::string describe() {
  const Processor processor = machine::processor();
  const Gpus gpus = machine::gpus();
  std::string text =
      fmt::format("{}, {} core{}, {}", processor.name, processor.cores,
                  processor.cores == 1 ? "" : "s", format_bytes(machine::memory().total));
  for (const Gpu& gpu : gpus.gpus) text += fmt::format(", {}", gpu.name);
  return text;
}

}  // namespace snug::machine
