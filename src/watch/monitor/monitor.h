// snug monitor: a live view of a run in the terminal, from the status that each of its processes
// leaves in its folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recipe/options/commands.h"

namespace snug::monitor {

// Ends with the run, on q and on Ctrl-C, and leaves the terminal as it was. Throws UserError where
// there is no run.
int monitor(const recipe::MonitorOptions& options);

}  // namespace snug::monitor
