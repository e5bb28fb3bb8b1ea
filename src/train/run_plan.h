// How a run uses the planner: the memory it will take, the techniques of --fit, and suggestions
// after it ran out of memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/dist/mesh.h"
#include "data/dataset.h"
#include "engine/host.h"
#include "models/model.h"
#include "plan/predict.h"
#include "plan/suggest.h"
#include "recipe/recipe.h"
#include "train/records/run_log.h"

namespace snug::train {

// The run as known before its weights are loaded.
struct PlannedRun {
  const models::Model& model;
  const recipe::Recipe& recipe;
  const data::Dataset& dataset;
  int64_t max_seqlen;  // of the data
  const engine::Host& host;
  const dist::Mesh& mesh;
};

// The device memory that a run needs, including its libraries', and what is available. On a GPU it
// needs what the allocator reserves, with a budget or without.
struct Room {
  int64_t needed = 0;
  int64_t there = 0;  // 0: no limit
  bool fits() const { return there == 0 || needed <= there; }
};
Room room_of(const engine::Host& host, const plan::Prediction& prediction);

// Prints and records the plan. Throws PlanDoesNotFit, unless the recipe has force.
void check_plan(const PlannedRun& run, RunLog& log);

// --fit: the recipe with techniques and a micro-batch that fit into the available memory. Throws
// PlanDoesNotFit if none fits.
recipe::Recipe fitting_recipe(const PlannedRun& run, RunLog& log);

// Changes with which the run would fit into the budget, or into the device if there is none; on a
// CPU into at most `available` bytes, if that is above 0. Empty if planning fails: that must not
// hide why the run ended.
std::vector<plan::Suggestion> suggestions(const PlannedRun& run, int64_t available);

}  // namespace snug::train
