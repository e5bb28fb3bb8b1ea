// How much each of a model's units has to compute, for dealing them out to the stages of a pipeline
// and for how long the slowest stage takes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "nn/unit.h"

namespace snug::setup {

struct StageLayout;

// Elements of the weights that a unit's products read, a tied one's too. One more, so that units
// without any are dealt out as well.
double work_of(nn::Unit& unit);

// The work of the stage that has most, where 1 is what each would have if all had the same.
double most_of_a_stage(const std::vector<nn::Unit*>& units, const StageLayout& layout);

}  // namespace snug::setup
