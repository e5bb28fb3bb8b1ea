// snug lab: run, list, report, compare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/commands.h"

namespace snug::experiment {

// Returns the exit code: 0 all rows came to an end that is a result (out of memory is one), 1 a row
// crashed, 2 a row failed for its recipe or data, or an outcome is not the expected one.
int lab(const config::LabOptions& options, const std::vector<std::string>& words);

}  // namespace snug::experiment
