// A model that many ranks hold in parts, written by the first of them: it asks for one unit after
// another, all ranks gather that unit's values, and nobody ever holds more than one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "dist/group.h"
#include "nn/unit.h"
#include "setup/export.h"

namespace snug::setup {

// Called on all ranks alike, in the same order, with a unit's index: brings the whole values of its
// parameters into their `value` or `home`, at rank 0 at least; and lets them go.
struct UnitGathering {
  std::function<void(size_t unit)> gather;
  std::function<void(size_t unit)> release;
  // How rank 0 reads one that is gathered: what is in memory, unless it is said otherwise.
  ParameterReader read = resident_value;
};

// Runs `write` on rank 0 with a reader of these units' parameters, while the other ranks take part
// in the gathering. A value is to be used before one of another unit is asked for. To be called by
// all ranks; when it returns the writing is over, and where it failed (a full disk) all throw the
// same error.
void write_gathered(dist::Group& ranks, const std::vector<nn::Unit*>& units,
                    const UnitGathering& gathering,
                    const std::function<void(const ParameterReader&)>& write);

}  // namespace snug::setup
