// Who started this process; world.h has where it stands.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "dist/world.h"

namespace snug::dist {

// "mpirun", "srun", "mpiexec", or nothing for a process of its own.
std::string started_by();

// torchrun's variables name several processes, and no launcher that MPI knows has started them. MPI
// cannot join such processes.
bool is_started_by_torchrun();

}  // namespace snug::dist
