// Splits a model's units among the stages of a pipeline, and handles weights that several stages
// use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/dist/mesh.h"
#include "core/nn/unit.h"
#include "engine/exec/policy.h"
#include "engine/exec/stage_links.h"
#include "models/model.h"
#include "recipe/recipe.h"

namespace snug::engine {

struct Engine;

// The units are split into consecutive ranges, called places: of n stages, stage s runs the places
// s, s + n, s + 2n, ….
struct StageLayout {
  int64_t stages = 1;
  int64_t chunks = 1;           // places per stage
  std::vector<int64_t> begins;  // first unit of each place; last, the number of units

  int64_t place_of(int64_t unit) const;
  int64_t stage_of(int64_t unit) const { return place_of(unit) % stages; }
};

// Minimizes the work of the place with the most work, counted in products with weights. Throws
// UserError if there are fewer units than places.
StageLayout deal_units(const std::vector<nn::Unit*>& units, int64_t stages, int64_t chunks);

// A weight that several stages use, such as a tied head's: each stage has a copy.
struct CommonParameter {
  nn::Parameter* parameter = nullptr;
  std::vector<int64_t> stages;  // the first one has the unit that owns it
};

struct Stage {
  StageLayout layout;
  int64_t index = 0;
  std::vector<nn::Unit*> units;                  // by chunk
  std::vector<std::unique_ptr<nn::Unit>> added;  // units added to own the copies
  std::vector<int64_t> positions;                // index of each unit in the model; -1: added
  std::vector<nn::UnitKind> kinds;               // of all units of the model
  std::vector<exec::UnitRange> ranges;
  int64_t first_trained_place = 0;
  std::vector<CommonParameter> common;  // of all stages

  bool is_common(const nn::Parameter& parameter) const;
  // Whether another stage adds this parameter's gradient to the global norm.
  bool is_counted_elsewhere(const nn::Parameter& parameter) const;
};

// This rank's stage. Call after adapters are added. Throws UserError if the recipe does not allow a
// pipeline.
Stage make_stage(models::Model& model, const recipe::Recipe& recipe, const dist::Mesh& mesh);

// Null with a single stage.
std::unique_ptr<exec::StageLinks> make_links(const models::Model& model,
                                             const recipe::Recipe& recipe, const Engine& engine);

// Sums the gradients of common parameters over their stages, bit-identical on all of them.
void add_up_common_gradients(const Engine& engine);

// The computational work of units, for splitting them among pipeline stages and estimating the
// slowest stage.

struct StageLayout;

// The number of weight elements in a unit's products, tied weights included, plus one so that no
// unit counts zero.
double work_of(nn::Unit& unit);

// The work of the busiest stage relative to an even split (1).
double most_of_a_stage(const std::vector<nn::Unit*>& units, const StageLayout& layout);

}  // namespace snug::engine
