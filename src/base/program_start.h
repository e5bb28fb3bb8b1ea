// When the run began that this process belongs to: the zero of start-up times. That is the
// program's own first instruction, not the process's start, which may be hours older: a shell that
// did other work before it replaced itself by the program (exec) was the same process. Where a
// program starts further processes of the same run, they count from its beginning.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace snug {

double seconds_since_program_start();

// For the environment of processes that belong to the same run: when it began, on this machine.
inline constexpr const char* kStartVariable = "SNUG_STARTED";
std::string program_start();

// Counts from the beginning that another program's program_start() told. One of another machine,
// whose clock is not ours, and what is no such text change nothing.
void count_from(const std::string& start);

}  // namespace snug
