// What of a model trains and how much it drops meanwhile, as a recipe says: the one place that runs
// and plans share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/recipe.h"
#include "models/model.h"

namespace snug::setup {

// Freezes the parts that model.train_parts leaves out, puts adapters in place (setup/adapters.h)
// and sets model.dropout. Before parameters are allocated; again is as once. Throws UserError for
// parts that the model does not have.
void choose_trained(models::Model& model, const config::Recipe& recipe);

}  // namespace snug::setup
