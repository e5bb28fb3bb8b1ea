// What became of the categories of memory between two rows, in words. What two rows have at their
// peaks compares only where both peaks are in the same place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lab/result.h"

namespace snug::lab {

// The highest moment of the plan that these figures are of, or that foresaw them; null: there is
// no timeline, or another peak than the figures have.
const Moment* peak_moment(const RowResult& result, const Figures& figures);

// "block 3, backward".
std::string place_words(const Moment& moment);

// Each category's own maximum over the step. `result` has a peak_moment.
Figures at_their_most(const RowResult& result, const Figures& figures);

// "activations fall (16.4 → 8.20 GiB)", "gradients now take 4.00 GiB": a clause each of the largest
// changes, largest first; categories that changed by one and the same factor are one.
std::vector<std::string> category_clauses(const Figures& before, const Figures& after);

// "; a weight has 2 bytes instead of 4"; empty where that did not change, or is not known.
std::string width_clause(const RowResult& base, const Figures& before, const RowResult& own,
                         const Figures& after);
// "; host memory holds 12.0 GiB beside it"; empty where little changed.
std::string host_clause(const Figures& before, const Figures& after);

}  // namespace snug::lab
