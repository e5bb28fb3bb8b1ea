// The launcher that started this process; its rank is in world.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/dist/world.h"

namespace snug::dist {

// "mpirun", "srun" or "mpiexec"; empty for a single process.
std::string started_by();

// Whether torchrun started several processes, which MPI cannot join.
bool is_started_by_torchrun();

}  // namespace snug::dist
