// The part of the page about rows that belong together: the curves of a sweep with its optimum, and
// what a search found and tried.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lab/report/row_view.h"

namespace snug::lab {

// Empty where the suite has neither.
std::string sweeps_and_searches(const LabRun& run, const std::vector<RowView>& views);

}  // namespace snug::lab
