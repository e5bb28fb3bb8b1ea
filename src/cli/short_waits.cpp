// OpenMP threads that wait for each other spin 300,000 rounds by default, some milliseconds, on a
// core that the other thread may need. The runtime reads the number of rounds from the environment
// before main can set it, so the program restarts itself once with that variable. 500 rounds (some
// microseconds) are as fast on an idle machine and then free the core: measured in
// docs/benchmarks.md. GOMP_SPINCOUNT or OMP_WAIT_POLICY, if set, are kept.
// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "base/program.h"

namespace {

bool begins_with(const char* text, const char* beginning) {
  for (; *beginning != 0; ++text, ++beginning) {
    if (*text != *beginning) return false;
  }
  return true;
}

// Runs before the libraries' constructors (see base/first_instruction.cpp), so it may call no
// library and have no instrumentation. The kernel's auxiliary vector follows the environment.
__attribute__((no_sanitize("address", "thread", "undefined"))) void start_with_short_waits(
    int /*count*/, char** words, char** environment) {
  constexpr size_t kMost = 4096;
  const char* longer[kMost + 2];
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (begins_with(environment[count], "GOMP_SPINCOUNT=") ||
        begins_with(environment[count], "OMP_WAIT_POLICY=") || count == kMost)
      return;
    longer[count] = environment[count];
  }
  longer[count] = snug::kShortWaits;
  longer[count + 1] = nullptr;
  const char* file = nullptr;
  bool by_the_kernel = false;  // not by `ld.so PROGRAM`, which has other arguments
  const auto* fact = reinterpret_cast<const ElfW(auxv_t)*>(environment + count + 1);
  for (; fact->a_type != AT_NULL; ++fact) {
    if (fact->a_type == AT_EXECFN) file = reinterpret_cast<const char*>(fact->a_un.a_val);
    if (fact->a_type == AT_BASE) by_the_kernel = fact->a_un.a_val != 0;
  }
  // Returns only if it fails; then threads spin for long.
  if (file != nullptr && by_the_kernel) ::syscall(SYS_execve, file, words, longer);
}
__attribute__((section(".preinit_array"),
               used)) void (*const before_libraries)(int, char**, char**) = start_with_short_waits;

}  // namespace
