// SPDX-License-Identifier: Apache-2.0
#include "watch/machine/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/bytes.h"
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

namespace {

constexpr const char* kWanted[] = {"avx2",        "fma",         "f16c",     "avx512f",  "avx512bw",
                                   "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8",
                                   "asimd",       "sve",         "bf16",     "i8mm"};

std::string architecture() {
  struct utsname name {};
  return ::uname(&name) == 0 ? name.machine : "unknown";
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // More processors than the set has room for is an error; then all there are.
  const int count = ::sched_getaffinity(0, sizeof(set), &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const std::optional<double> share = control_group("/").processors;
  if (!share) return count;
  return std::clamp(static_cast<int>(std::ceil(*share)), 1, count);
}

Processor processor() {
  const std::string text = kernel_text("/proc/cpuinfo");
  Processor processor{.name = words_behind(text, "model name"), .cores = usable_cores()};
  if (processor.name.empty()) processor.name = architecture();
  std::string flags = words_behind(text, "flags");
  if (flags.empty()) flags = words_behind(text, "Features");  // ARM's word
  std::istringstream words(flags);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  for (const char* wanted : kWanted)
    if (std::ranges::find(all, wanted) != all.end()) processor.features.emplace_back(wanted);
  return processor;
}

namespace {

namespace fs = std::filesystem;

struct Kind {
  uint32_t magic;
  const char* name;
};

// Numbers of linux/magic.h and of file systems that keep theirs elsewhere.
constexpr Kind kKinds[] = {
    {0xEF53, "ext4"},        {0x58465342, "xfs"},  {0x9123683E, "btrfs"},  {0x01021994, "tmpfs"},
    {0x794C7630, "overlay"}, {0x6969, "nfs"},      {0xFF534D42, "cifs"},   {0xFE534D42, "smb"},
    {0x2FC12FC1, "zfs"},     {0x65735546, "fuse"}, {0x0BD00BD0, "lustre"}, {0x01021997, "9p"},
    {0x00C36400, "ceph"},    {0x47504653, "gpfs"}, {0x19830326, "beegfs"}, {0xF2F52010, "f2fs"}};

}  // namespace

fs::path nearest_folder(const fs::path& folder) {
  std::error_code error;
  fs::path at = fs::absolute(folder, error);
  while (!fs::exists(at, error) && at != at.parent_path()) at = at.parent_path();
  return at;
}

Disk disk(const fs::path& folder) {
  const fs::path there = nearest_folder(folder);
  Disk disk;
  struct statvfs room {};
  if (::statvfs(there.c_str(), &room) == 0) {
    disk.size = static_cast<int64_t>(room.f_blocks * room.f_frsize);
    disk.free = static_cast<int64_t>(room.f_bavail * room.f_frsize);
  }
  struct statfs type {};
  if (::statfs(there.c_str(), &type) == 0)
    for (const Kind& kind : kKinds)
      if (kind.magic == static_cast<uint32_t>(type.f_type)) disk.kind = kind.name;
  return disk;
}

}  // namespace snug::machine
