// Notes when the program began: for programs alone, since no shared library may have such a
// function.
// SPDX-License-Identifier: Apache-2.0
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

extern double snug_program_began;  // base/program.cpp

namespace {

// Runs before anything else of the program and of the libraries that are linked to it, also before
// a sanitizer is ready: hence no library's function, and no instrumentation.
__attribute__((no_sanitize("address", "thread", "undefined"))) void note_first_instruction() {
  timespec now{};
  ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  snug_program_began = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
__attribute__((section(".preinit_array"),
               used)) void (*const first_of_all)() = note_first_instruction;

}  // namespace
