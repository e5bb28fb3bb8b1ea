// The process that the user starts for a run of several processes: it starts them through mpirun,
// shows rank 0's output as its own, and kills them all when one fails.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "train/launch/layout.h"

namespace snug::launch {

// Set for the ranks: the job's name, and the size of the user's terminal if there is one.
inline constexpr const char* kJobVariable = "SNUG_JOB";
inline constexpr const char* kTerminalVariable = "SNUG_TERMINAL";

// Returns the exit code when all processes are gone. Throws UserError if they cannot be started.
int supervise(MpirunOptions options, const std::string& out_dir);

}  // namespace snug::launch
