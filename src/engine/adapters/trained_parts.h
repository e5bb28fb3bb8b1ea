// Chooses what trains in a model, and its dropout, as a recipe says; shared by runs and plans.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
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

// The type in which frozen matrices are held: that of products, to which they are rounded when they
// are used; nothing: that of all weights. Those that PiSSA takes its start away from are no longer
// the checkpoint's numbers, and stay as wide as the weights that train.
std::optional<at::ScalarType> frozen_type(const recipe::Recipe& recipe);

// Sets it, after choose_trained() and quantize_weights(). Call before parameters are allocated.
void hold_frozen(models::Model& model, const recipe::Recipe& recipe);

}  // namespace snug::engine
