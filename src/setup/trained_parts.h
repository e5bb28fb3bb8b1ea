// What of a model trains and how much it drops meanwhile, as a recipe says: the one place that runs
// and plans share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "config/recipe.h"
#include "models/model.h"

namespace snug::setup {

// The units of the parts that model.train_parts names; none where it is "all". Throws UserError for
// parts that the model does not have.
std::vector<nn::Unit*> chosen_units(models::Model& model, const config::Recipe& recipe);

// Freezes the parts that model.train_parts leaves out, puts adapters in place (setup/adapters.h)
// and sets model.dropout. With adapters the parts that are named train whole beside them and get
// none. Before parameters are allocated; again is as once. Throws UserError as above.
void choose_trained(models::Model& model, const config::Recipe& recipe);

}  // namespace snug::setup
