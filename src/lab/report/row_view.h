// A row as every form of the report shows it: its figures, verdict and explanation, made once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lab/report/verdict.h"
#include "lab/result.h"

namespace snug::lab {

// In plan mode "fits" or "out of memory", else how the process ended. Signs differ in shape, not
// only in colour.
struct OutcomeView {
  enum class Kind { Good, OutOfMemory, Bad, None };
  Kind kind = Kind::None;
  std::string words;
  std::string sign;  // ✓ ✗ ! –
};

struct RowView {
  const Row* row = nullptr;
  const RowResult* result = nullptr;
  const Figures* own = nullptr;  // null: there are none
  OutcomeView outcome;
  RowVerdict verdict;
  std::string verdict_words;  // "same outcome", "differs", …; empty where nothing was expected
  std::vector<FigureMark> marks;  // one a kind of figure that is held against something
  std::string changes;            // empty: none
  std::vector<std::string> explanation;
  std::vector<std::string> why;  // of one that differs: what the suite knows of it; empty: nothing
  std::string close;             // "close: 0.6 % left" of one that just fits; empty: it is not
  std::string counted_close;     // the same of the other program's count
  bool is_full_size = true;      // as published figures are
  bool is_try = false;           // of a search: it answers one question together with the others
};

// Those that are no tries of a search.
std::vector<RowView> without_tries(const std::vector<RowView>& views);

// What the suite knows of why a row differs; of one that it says nothing of: that.
std::vector<std::string> why_lines(const RowView& view);

// Whether published figures and this run's are of the same models.
bool is_full_size(const LabRun& run);

// Out of memory, by plan or run; and whether it has figures that it came to an end with: a plan of
// a row that crashed says nothing of what it did.
bool ran_out(const RowView& view);
bool came_to_an_end(const RowView& view);

// One a row, in order. Points into `run`.
std::vector<RowView> views_of(const LabRun& run);

// "14 rows: 13 same outcome as published, 1 fits where the original did not; memory: 11 of 11
// within 10 %".
std::string summary_line(const LabRun& run, const std::vector<RowView>& views);

// "planned on a100-80", "measured", "scaled down, measured"; and what that means, in a sentence.
std::string mode_words(const LabRun& run);
std::string mode_meaning(const LabRun& run);
// Why planned times are shorter than published ones; empty where none is held against one.
std::string time_meaning(const LabRun& run, const std::vector<RowView>& views);

// Of a sweep: the row with the most tokens a second of those that ran to their end. Of a search:
// the largest value that fits; null: none.
const RowView* best_of_sweep(const std::vector<const RowView*>& members);
const RowView* largest_that_fits(const std::vector<const RowView*>& members);
std::vector<const RowView*> members_of(const Group& group, const std::vector<RowView>& views);

// Of what its group is over: "8", or the model's name where that is what grows.
std::string value_text(const Group& group, const RowView& view);

// The other program's name where any row has a count of it; empty: none.
std::string counted_program(const LabRun& run);

// "reserved 71.4 GiB" of each published figure, as the check has it.
std::string published_text(const FigureCheck& check);
std::string compared_text(const FigureCheck& check);  // "–" where nothing is held against it

}  // namespace snug::lab
