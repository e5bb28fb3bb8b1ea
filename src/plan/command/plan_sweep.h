// snug plan --sweep: the same recipe with one or two of its options running through values, as a
// table of what each combination takes, whether it fits and how fast it is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "recipe/options/commands.h"

namespace snug::plan {

// One axis of a sweep: keys that get the same value, and the values.
struct SweepAxis {
  std::vector<std::string> keys;
  std::vector<std::string> values;

  std::string name() const;  // of the keys, without their sections
};

// "train.micro_batch_size=1,2,4 device=l4,h100-80"; keys joined by + get the same value, and 1:16
// is 1, 2, 4, 8, 16. One axis or two. Throws UserError.
std::vector<SweepAxis> read_sweep(const std::string& text);

// `words`: the command line, to which each combination is added. Throws OutOfMemory where none
// fits, UserError where none can be planned.
void plan_sweep(const recipe::PlanOptions& options, const std::vector<std::string>& words);

}  // namespace snug::plan
