// Whether the disk has room for what a run will write, as it is known before its first step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "recipe/recipe.h"

namespace snug::train {

struct DiskNeed {
  int64_t model_bytes = 0;  // of the model or the adapter that the run ends with; 0: none
  int64_t checkpoint_bytes = 0;
  int64_t num_checkpoints = 0;  // that will be written
  int64_t num_there = 0;        // earlier ones, which count among those that are kept
  std::optional<int64_t> keep;  // all where it says nothing
};

// How many checkpoints a run will write from `step` to its last one.
int64_t checkpoints_to_write(const recipe::Recipe& recipe, int64_t step, int64_t last_step);

// How many more there are at once than at the start: those kept, and one that is written beside
// them.
int64_t most_checkpoints(const DiskNeed& need);

// The most that the run adds to what lies on the disk.
int64_t most_bytes(const DiskNeed& need);

// Throws UserError where not even the model fits. Returns what to warn of; empty: nothing.
std::string check_room(const DiskNeed& need, int64_t free_bytes, const std::string& out_dir);

}  // namespace snug::train
