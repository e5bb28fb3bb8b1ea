// What a run asks the planner: what it will take, which techniques to choose, and what would have
// fitted.
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

// The run as far as it is known before its weights are there.
struct PlannedRun {
  const models::Model& model;
  const recipe::Recipe& recipe;
  const data::Dataset& dataset;
  int64_t max_seqlen;  // of the data
  const engine::Host& host;
  const dist::Mesh& mesh;
};

// What a run takes of its device, its libraries' part included, and what it may take: on a GPU what
// the allocator reserves, since that is what the device gives, with a budget or without.
struct Room {
  int64_t needed = 0;
  int64_t there = 0;  // 0: no limit
  bool fits() const { return there == 0 || needed <= there; }
};
Room room_of(const engine::Host& host, const plan::Prediction& prediction);

// Prints and records what the run will take. Throws PlanDoesNotFit, unless the recipe says to try.
void check_plan(const PlannedRun& run, RunLog& log);

// --fit: the recipe with techniques and micro-batch for the memory there is. Throws PlanDoesNotFit
// where none fits.
recipe::Recipe fitting_recipe(const PlannedRun& run, RunLog& log);

// What would fit into the budget, or into the device where there is none. Nothing where planning
// itself fails: that must not hide why the run ended.
std::vector<plan::Suggestion> suggestions(const PlannedRun& run);

}  // namespace snug::train
