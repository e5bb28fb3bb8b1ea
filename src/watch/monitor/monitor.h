// snug monitor: a live view of a run in the terminal, from the status files that its processes
// write.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recipe/options/commands.h"

namespace snug::monitor {

// Returns when the run ends, on q and on Ctrl-C, and restores the terminal. Throws UserError if
// there is no run.
int monitor(const recipe::MonitorOptions& options);

}  // namespace snug::monitor
