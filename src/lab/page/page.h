// The parts of the report's page: what several of them are made of, the table of the rows, charts,
// a section a row, sweeps and searches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lab/report/row_view.h"

namespace snug::lab {

// Text of a suite, row or log, whichever way it is written, among words that go from left to right.
std::string isolated(const std::string& text);

// A table or drawing that moves inside its own frame, which the keyboard can reach. `name` is said
// to those who cannot see it; `style`: more classes of the frame.
std::string scrolling(const std::string& name, const std::string& inside,
                      const std::string& style = "");

// One of two drawings of the same: one for a desk and for paper, one for a phone.
std::string either(const std::string& wide, const std::string& small);
constexpr double kPhoneWidth = 320;  // of the latter, so that it is shown as large as it is drawn

// A drawing under its title; `aside` stands behind that, smaller.
std::string figure(const std::string& title, const std::string& aside, const std::string& inside);

// What a colour of a drawing stands for.
std::string key_entry(const std::string& colour, const std::string& words);
// Of the page's eight, over and over.
std::string colour_of(size_t index);
// Whether bytes are wide enough in a drawing of `full` to be seen, and worth an entry in its key.
bool is_visible(int64_t bytes, double full);

// Times between the smallest and the largest of an axis that is logarithmic.
constexpr double kLogarithmicFrom = 8;

// Whether a limit is so far above all values that drawing it would flatten them: then it is said in
// words.
bool is_far_above(double limit, double largest);

// What the axis of a chart is in, by its largest value.
struct ByteUnit {
  const char* name;
  double bytes;
};
ByteUnit chart_unit(double largest_bytes);

// The table: what the table of every other form has, with bars, links, keys to sort by, and both
// figures where one decides and another is known.
std::string page_table(const LabRun& run, const std::vector<RowView>& views);

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

// A row's own section: everything there is to know of it, folded away.
std::string row_section(const LabRun& run, const RowView& view);

// "<span class="chip good">✓ fits</span>", and behind it whether that is close.
std::string outcome_chip(const RowView& view);
// The verdict, and behind it how near the figures are; empty where nothing was expected.
std::string verdict_chip(const RowView& view);

// The end of a row's output.log as it would stand on a terminal: no escape sequences, of a line
// that was redrawn the last state. Empty where there is none.
std::string log_tail(const LabRun& run, const RowView& view);

// Rows that belong together: the curves of a sweep with its optimum, and what a search found and
// tried. Empty where the suite has neither.
std::string sweeps_and_searches(const LabRun& run, const std::vector<RowView>& views);

}  // namespace snug::lab
