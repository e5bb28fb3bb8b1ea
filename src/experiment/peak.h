// Where in a step the peak is, and the most that each category takes at any moment of it: what two
// rows have at their peaks compares only where both peaks are in the same place.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "experiment/result.h"

namespace snug::experiment {

// The highest moment of the plan that these figures are of, or that foresaw them; null: there is
// no timeline, or another peak than the figures have.
const Moment* peak_moment(const RowResult& result, const Figures& figures);

// "block 3, backward".
std::string place_words(const Moment& moment);

// Each category's own maximum over the step. `result` has a peak_moment.
Figures at_their_most(const RowResult& result, const Figures& figures);

}  // namespace snug::experiment
