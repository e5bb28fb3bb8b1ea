// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "watch/machine/control_group.h"
#include "watch/machine/kernel_files.h"
#include "watch/machine/machine.h"

namespace snug::machine {
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

}  // namespace snug::machine
