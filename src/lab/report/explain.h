// Explains the effect of a row's technique in two sentences: how the categories of memory changed
// against the row it is based on, and what that costs in time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lab/result.h"

namespace snug::lab {

// Never empty. For a row that ran out of memory: the largest categories and how much was missing.
std::vector<std::string> explain(const LabRun& run, const Row& row);

// "train.micro_batch_size 32 → 8, precision 32-true → bf16-true".
std::string changes_text(const LabRun& run, const Row& row);

// Clauses about how the categories of memory changed between two rows. Categories at the peak can
// be compared only if both peaks are at the same place of the step.

// The highest moment in the timeline of the plan for these figures; null if there is no timeline,
// or its peak is not that of the figures.
const Moment* peak_moment(const RowResult& result, const Figures& figures);

// "block 3, backward".
std::string place_words(const Moment& moment);

// Each category's own maximum over the step. `result` has a peak_moment.
Figures at_their_most(const RowResult& result, const Figures& figures);

// "activations fall (16.4 → 8.20 GiB)", "gradients now take 4.00 GiB": the largest changes, largest
// first; categories that changed by the same factor share a clause.
std::vector<std::string> category_clauses(const Figures& before, const Figures& after);

// "; a weight has 2 bytes instead of 4"; empty if that did not change or is not known.
std::string width_clause(const RowResult& base, const Figures& before, const RowResult& own,
                         const Figures& after);
// "; host memory holds 12.0 GiB beside it"; empty if little changed.
std::string host_clause(const Figures& before, const Figures& after);

}  // namespace snug::lab
