// `snug bench collectives`: what the links between this run's devices give.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config/commands.h"

namespace snug::train {

// Starts the processes that it takes, or is one of them. The exit code. `words` are those of the
// command line.
int bench(const config::BenchOptions& options, const std::vector<std::string>& words);

}  // namespace snug::train
