// A plan as a page: memory over one optimizer step, stacked by category. One file, no network; what
// ran at a moment shows where the pointer rests, and in a table for those without one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/charts/timeline_chart.h"

namespace snug::report {

// What --fit found: text, rows as HTML (Table::html), text.
struct PlanFit {
  std::string above, table, below;
};

struct PlanPage {
  std::string title;
  std::vector<std::string> lines;  // what the terminal shows above the chart
  std::vector<std::string> categories;
  std::vector<PlanMoment> moments;
  int64_t limit_bytes = 0;  // of the device; 0: none
  PlanFit fit;              // empty: none
  std::string beside;       // of --like, as text; empty: none
};

std::string plan_html(const PlanPage& page);

// The moments' sums as one line of `width` blocks, low to high.
std::string sparkline(const std::vector<int64_t>& values, int width);

}  // namespace snug::report
