// Shards a model among processes as the recipe's strategy says: chooses which parameters form flat
// units and makes the policy that gathers and reduces them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/exec/policies/sharding.h"
#include "recipe/recipe.h"

namespace snug::engine {

struct Engine;

// Allocates the sharded parameters. Null if every process trains alone. Throws UserError for an
// optimizer or technique that does not work with sharding.
std::unique_ptr<exec::Sharding> make_sharding(const recipe::Recipe& recipe, const Engine& engine);

}  // namespace snug::engine
