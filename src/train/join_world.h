// The other processes of a run, if there are any.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/dist/world.h"
#include "recipe/recipe.h"

namespace snug::train {

// Joins them, and throws UserError unless all have the same program and recipe.
std::shared_ptr<dist::World> join_world(const recipe::Recipe& recipe);

}  // namespace snug::train
