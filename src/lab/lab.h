// snug lab: run, list, report, compare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lab/run/gpus_here.h"
#include "recipe/options/commands.h"

namespace snug::lab {

// Returns the exit code: 0 all rows came to an end that is a result (out of memory is one), 1 a row
// crashed, 2 a row failed for its recipe or data, or an outcome is not the expected one.
// The GPUs are asked for where rows run at full size.
int lab(const recipe::LabOptions& options, const std::vector<std::string>& words,
        const DeviceQuestions& devices);

}  // namespace snug::lab
