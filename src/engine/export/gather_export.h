// Writes a sharded model from rank 0: it requests one unit after another, all ranks gather that
// unit's values, and no rank ever holds more than one unit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/dist/group.h"
#include "core/nn/unit.h"
#include "engine/export/export.h"

namespace snug::engine {

// Called on all ranks in the same order with a unit's index. open: gathers the values of its
// parameters into `value` or `home`, at least on rank 0; close: frees them.
struct UnitGathering {
  std::function<void(size_t unit)> gather;
  std::function<void(size_t unit)> release;
  // How rank 0 reads a gathered parameter; by default the value in memory.
  ParameterReader read = resident_value;
};

// Runs `write` on rank 0 with a reader of these units' parameters, while the other ranks take part
// in the gathers. A value is valid until one of another unit is requested. All ranks must call
// this; it returns when everything is written. If writing fails (disk full), all ranks throw the
// same error.
void write_gathered(dist::Group& ranks, const std::vector<nn::Unit*>& units,
                    const UnitGathering& gathering,
                    const std::function<void(const ParameterReader&)>& write);

}  // namespace snug::engine
