// A row as every form of the report shows it: its figures, verdict and explanation, made once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "experiment/result.h"
#include "experiment/verdict.h"

namespace snug::experiment {

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
  std::string verdict_words;  // "as published", "differs", …; empty where nothing was expected
  std::string changes;        // empty: none
  std::vector<std::string> explanation;
  bool is_try = false;  // of a search: it answers one question together with the others
};

// Those that are no tries of a search.
std::vector<RowView> without_tries(const std::vector<RowView>& views);

// One a row, in order. Points into `run`.
std::vector<RowView> views_of(const LabRun& run);

// "14 rows: 13 as published, 1 beyond it; 11 of 11 figures within 10 %".
std::string summary_line(const LabRun& run, const std::vector<RowView>& views);

// "planned on a100-80", "measured", "scaled down, measured"; and what that means, in a sentence.
std::string mode_words(const LabRun& run);
std::string mode_meaning(const LabRun& run);

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

}  // namespace snug::experiment
