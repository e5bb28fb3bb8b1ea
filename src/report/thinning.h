// A run's record stays small however long the run: the newest entries of a list are kept whole,
// older ones stand for several each. metrics.csv has every step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "report/run_record.h"

namespace snug::report {

// The first entry and at least so many of the newest are kept whole, and at most so many others,
// which all stand for the same number of entries, a power of two. That doubles when they are too
// many, and is looked at each time that kOlder more were added: adding costs O(1) on average.
inline constexpr size_t kNewest = 4096, kOlder = 2048;
inline constexpr size_t kMostEntries = kNewest + 2 * kOlder;

void add(std::vector<StepRecord>& steps, const StepRecord& step);
void add(std::vector<ValidationRecord>& validations, const ValidationRecord& validation);
// Counts the step to the last epoch, or to a new one. Not if its epoch is not recorded.
void add(std::vector<EpochRecord>& epochs, const StepRecord& step);

}  // namespace snug::report
