// A row as all forms of the report show it: figures, verdict and explanation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/report/verdict.h"
#include "lab/result.h"
#include "recipe/numbers.h"

namespace snug::lab {

// In plan mode "fits" or "out of memory", else how the process ended. Signs differ in shape, not in
// colour alone.
struct OutcomeView {
  enum class Kind { Good, OutOfMemory, Bad, None };
  Kind kind = Kind::None;
  std::string words;
  std::string sign;  // ✓ ✗ ! –
};

struct RowView {
  const Row* row = nullptr;
  const RowResult* result = nullptr;
  const Figures* own = nullptr;  // own_figures()
  OutcomeView outcome;
  RowVerdict verdict;
  std::string verdict_words;      // "same outcome", "differs", …; empty if nothing was expected
  std::vector<FigureMark> marks;  // one per kind of figure that is compared
  std::string changes;            // empty: none
  std::vector<std::string> explanation;
  std::vector<std::string> why;  // if it differs: the suite's explanation, if it has one
  std::string close;             // "close: 0.6 % left" if it just fits
  std::string counted_close;     // the same for the other program
  recipe::Price price;           // of an hour of one device, if it is known of this row's
  bool is_full_size = true;      // as published figures are
  bool is_try = false;           // of a search
};

// The views that are not tries of a search.
std::vector<RowView> without_tries(const std::vector<RowView>& views);

// The suite's explanation of why a row differs, or a line that says it has none.
std::vector<std::string> why_lines(const RowView& view);

// Whether published figures and this run's are of the same models.
bool is_full_size(const LabRun& run);

// Whether the suite's explanations hold for this run: they are of the figures that its own device
// gives at full size.
bool is_explained_run(const LabRun& run);

// Whether snug's allocator, or that of the program it is compared with, has to retry in a step.
bool has_retries(const RowView& view);
// Whether the row ran out of memory, by plan or run; and whether it ended with figures of its own
// (the plan of a row that crashed does not count).
bool ran_out(const RowView& view);
bool came_to_an_end(const RowView& view);

// One per row, in order. Points into `run`.
std::vector<RowView> views_of(const LabRun& run);

// "14 rows: 13 same outcome as published, 1 fits where the original did not; memory: 11 of 11
// within 10 %".
std::string summary_line(const LabRun& run, const std::vector<RowView>& views);

// "planned on a100-80", "measured", "scaled down, measured"; and a sentence on what that means.
std::string mode_words(const LabRun& run);
std::string mode_meaning(const LabRun& run);
// Why planned times are shorter than published ones; empty if there are none to compare.
std::string time_meaning(const LabRun& run, const std::vector<RowView>& views);

// The rows whose times are more than a tenth off, though they decide nothing; empty: none.
std::string unjudged_times(const std::vector<RowView>& views);

// Why rows that ran and have a price show no cost; empty if all do.
std::string why_no_cost(const LabRun& run, const std::vector<RowView>& views);

// What so many tokens take at the row's own speed, on all of its devices. Empty: not known, or the
// row has no price.
struct Cost {
  double seconds = 0, price = 0;
};
std::optional<Cost> cost_of(const RowView& view, double tokens);
std::optional<Cost> cost_of_epoch(const RowView& view);

// The row of a sweep with the most tokens per second: snug's, by the published times, and by those
// counted for the other program where it fits. Null: fewer than two rows have one, so that none is
// the best of them.
const RowView* best_of_sweep(const std::vector<const RowView*>& members);
const RowView* best_published(const std::vector<const RowView*>& members);
const RowView* best_counted(const std::vector<const RowView*>& members);
// The largest value of a search that fits; null: none.
const RowView* largest_that_fits(const std::vector<const RowView*>& members);
std::vector<const RowView*> members_of(const Group& group, const std::vector<RowView>& views);
std::vector<const RowView*> members_of(const Group& group, std::vector<RowView>&& views) = delete;

// "data.padding_in_loss true": what the row's original has otherwise; empty: nothing.
std::string original_words(const Row& row);
// The row's value in its group: "8", or a model's name.
std::string value_text(const Group& group, const RowView& view);

// The other program's name where any row has a count of it; empty: none.
std::string counted_program(const LabRun& run);

// "reserved 71.4 GiB" of each published figure, as the check has it.
std::string published_text(const FigureCheck& check);
std::string compared_text(const FigureCheck& check);  // "–" where nothing is held against it

}  // namespace snug::lab
