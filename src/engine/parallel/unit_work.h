// The computational work of units, for splitting them among pipeline stages and estimating the
// slowest stage.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/nn/unit.h"

namespace snug::engine {

struct StageLayout;

// The number of weight elements in a unit's products, tied weights included, plus one so that no
// unit counts zero.
double work_of(nn::Unit& unit);

// The work of the busiest stage relative to an even split (1).
double most_of_a_stage(const std::vector<nn::Unit*>& units, const StageLayout& layout);

}  // namespace snug::engine
