// The process that a person starts when the run is to have many: it starts them through mpirun,
// shows what rank 0 says as if it had said it itself, and ends them all when one fails.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "train/launch/command.h"

namespace snug::launch {

// Set for the ranks: the job's name, and the size of the person's terminal if there is one.
inline constexpr const char* kJobVariable = "SNUG_JOB";
inline constexpr const char* kTerminalVariable = "SNUG_TERMINAL";

// Returns the exit code when all processes are gone. Throws UserError where none can be started.
int supervise(MpirunOptions options, const std::string& out_dir);

}  // namespace snug::launch
