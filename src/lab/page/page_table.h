// The page's table of the rows: what the table of every other form has, with bars, links, keys to
// sort by, and both figures where one decides and another is known.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lab/report/row_view.h"

namespace snug::lab {

std::string page_table(const LabRun& run, const std::vector<RowView>& views);

}  // namespace snug::lab
