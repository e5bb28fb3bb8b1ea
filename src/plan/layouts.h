// The ways in which a recipe's devices can share a model: every mesh over copies, shards, tensor
// and pipeline that their number allows and that would not be refused.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"
#include "recipe/recipe.h"

namespace snug::plan {

struct Layout {
  recipe::Word<recipe::Strategy> strategy;  // these three as the recipe has them
  std::string mesh;                         // empty: what the strategy makes of the devices
  int64_t interleave = 1;

  // Units are cut, or dealt out.
  bool divides_the_model() const;
};

// Those that keep what the recipe says: one that gives a strategy or a mesh has a single layout.
// Tensor axes stay within a machine, where links are fast, and have as many ranks as share
// heads and features evenly; a pipeline has no more stages than there are units to deal out.
std::vector<Layout> layouts(const models::Model& model, const recipe::Recipe& recipe);

// The recipe with this layout.
recipe::Recipe laid_out(recipe::Recipe recipe, const Layout& layout);

}  // namespace snug::plan
