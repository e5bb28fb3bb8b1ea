// The parts of the report's page: helpers, the table of rows, charts, a section per row, sweeps and
// searches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lab/report/row_view.h"
#include "report/html_page.h"

namespace snug::lab {

// Text of a suite, row or log, isolated so that text written from right to left does not affect its
// surroundings.
std::string isolated(const std::string& text);

// A table or drawing that scrolls inside a frame of its own, which the keyboard can reach. `name`
// is for screen readers; `style`: more CSS classes of the frame.
std::string scrolling(const std::string& name, const std::string& inside,
                      const std::string& style = "");

using report::either;
using report::kPhoneWidth;

// A drawing with its title, followed by a smaller `aside`.
std::string figure(const std::string& title, const std::string& aside, const std::string& inside);

// An entry of a drawing's key.
std::string key_entry(const std::string& colour, const std::string& words);
// One of the page's eight colours, in turn.
std::string colour_of(size_t index);
// Whether `bytes` can be seen in a drawing of `full` bytes, and so need an entry in its key.
bool is_visible(int64_t bytes, double full);

// An axis is logarithmic if its largest value is this many times its smallest.
constexpr double kLogarithmicFrom = 8;

// Whether a limit is so far above all values that drawing it would flatten them; then it is given
// as text.
bool is_far_above(double limit, double largest);

// The unit of a chart's axis.
struct ByteUnit {
  const char* name;
  double bytes;
};
ByteUnit chart_unit(double largest_bytes);

// The table of the other forms, with bars, links and sort keys, and both figures if one decides and
// another is known.
std::string page_table(const LabRun& run, const std::vector<RowView>& views);

// The id of a row's section: "row-ls01-tiny-baseline".
std::string anchor_of(const RowView& view);

// Each is empty if there is nothing to draw.
std::string memory_against_time(const LabRun& run, const std::vector<RowView>& views);
std::string memory_by_category(const LabRun& run, const std::vector<RowView>& views);
// Drawn from about `most_moments`, the highest moment of each interval.
std::string memory_over_a_step(const RowView& view, size_t most_moments);
std::string loss_curve(const RowView& view);
// With the published points if the run is of full size.
std::string sweep_charts(const LabRun& run, const Group& group,
                         const std::vector<const RowView*>& members);

// The section with all details of a row, folded.
std::string row_section(const LabRun& run, const RowView& view);

// "<span class="chip good">✓ fits</span>", and whether that is close.
std::string outcome_chip(const RowView& view);
// The verdict and how close the figures are; empty if nothing was expected.
std::string verdict_chip(const RowView& view);

// The end of a row's output.log as a terminal would show it: without escape sequences, and only the
// last state of a redrawn line. Empty if there is no log.
std::string log_tail(const LabRun& run, const RowView& view);

// The curves of sweeps with their optimum, and the answers and tries of searches. Empty if the
// suite has neither.
std::string sweeps_and_searches(const LabRun& run, const std::vector<RowView>& views);

}  // namespace snug::lab
