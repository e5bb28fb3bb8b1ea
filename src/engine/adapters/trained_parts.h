// Chooses what trains in a model, and its dropout, as a recipe says; shared by runs and plans.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/model.h"
#include "recipe/recipe.h"

namespace snug::engine {

// The units of the parts in model.train_parts; none for "all". Throws UserError for parts that the
// model does not have.
std::vector<nn::Unit*> chosen_units(models::Model& model, const recipe::Recipe& recipe);

// Freezes the parts that model.train_parts leaves out, adds adapters (engine/adapters/adapters.h)
// and sets model.dropout. With LoRA, the named parts train in full and get no adapters. Call before
// parameters are allocated; calling it twice does no harm. Throws UserError as above.
void choose_trained(models::Model& model, const recipe::Recipe& recipe);

}  // namespace snug::engine
