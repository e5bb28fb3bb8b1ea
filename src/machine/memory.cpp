// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "base/bytes.h"
#include "machine/control_group.h"
#include "machine/kernel_files.h"
#include "machine/machine.h"

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

}  // namespace snug::machine
