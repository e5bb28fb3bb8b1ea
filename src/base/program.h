// The start of this process's run, time zero of start-up times. That is the program's first
// instruction, not the process's start, which may be hours older if a shell replaced itself with
// the program (exec). Further processes that the program starts for the same run count from its
// start.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace snug {

double seconds_since_program_start();

// Environment variable that tells processes of the same run its start.
inline constexpr const char* kStartVariable = "SNUG_STARTED";
std::string program_start();

// Counts from the start in `start`, a text of another process's program_start(). Ignores invalid
// texts, and those of another machine, whose clock may differ.
void count_from(const std::string& start);

}  // namespace snug
