// Which of a model's units each stage of a pipeline has, and what stages have in common.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/recipe.h"
#include "dist/mesh.h"
#include "exec/policy.h"
#include "exec/stage_links.h"
#include "models/model.h"

namespace snug::setup {

struct Engine;

// Units are dealt out in places one after another: stage s of n has the places s, s + n, s + 2n ….
struct StageLayout {
  int64_t stages = 1;
  int64_t chunks = 1;           // places of each stage
  std::vector<int64_t> begins;  // by place its first unit; at the end the number of units

  int64_t place_of(int64_t unit) const;
  int64_t stage_of(int64_t unit) const { return place_of(unit) % stages; }
};

// So that the place with most work has as little as can be. Work is that of the products with
// weights. Throws UserError where there are fewer units than places.
StageLayout deal_units(const std::vector<nn::Unit*>& units, int64_t stages, int64_t chunks);

// A weight that units of several stages use, as a tied head does: each has a copy of it.
struct CommonParameter {
  nn::Parameter* parameter = nullptr;
  std::vector<int64_t> stages;  // the first has the unit that owns it
};

struct Stage {
  StageLayout layout;
  int64_t index = 0;
  std::vector<nn::Unit*> units;                  // by chunk
  std::vector<std::unique_ptr<nn::Unit>> added;  // of them: owners of copies
  std::vector<int64_t> positions;                // of units in the model; -1: added
  std::vector<exec::Stretch> stretches;
  int64_t first_trained_place = 0;
  std::vector<CommonParameter> common;  // of all stages

  bool is_common(const nn::Parameter& parameter) const;
  // Another stage adds the parameter's gradient to what all of them make up.
  bool is_counted_elsewhere(const nn::Parameter& parameter) const;
};

// The mesh's own. Once adapters are in place. Throws UserError where the recipe cannot be run so.
Stage make_stage(models::Model& model, const config::Recipe& recipe, const dist::Mesh& mesh);

// Null where the mesh has one stage.
std::unique_ptr<exec::StageLinks> make_links(const models::Model& model,
                                             const config::Recipe& recipe, const Engine& engine);

// Gradients of common parameters, added up over the stages that have them: the same bits on all.
void add_up_common_gradients(const Engine& engine);

}  // namespace snug::setup
