// The charts of a lab run's page, as HTML: memory against time over all rows, memory by category of
// each row, memory over one step of a row, and the curves of a sweep.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lab/report/row_view.h"

namespace snug::lab {

// Where a row's section is on the page: "row-ls01-tiny-baseline".
std::string anchor_of(const RowView& view);

// Each empty where there is nothing to draw.
std::string memory_against_time(const LabRun& run, const std::vector<RowView>& views);
std::string memory_by_category(const LabRun& run, const std::vector<RowView>& views);
// Drawn from at most about so many moments, the highest of each stretch.
std::string memory_over_a_step(const RowView& view, size_t most_moments);
std::string loss_curve(const RowView& view);
// With what was published where the run is of the same size.
std::string sweep_charts(const LabRun& run, const Group& group,
                         const std::vector<const RowView*>& members);

}  // namespace snug::lab
