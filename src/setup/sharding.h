// How processes share a model, as a recipe's strategy says: which parameters become flat units, and
// the policy that gathers and reduces them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "config/recipe.h"
#include "exec/policies/sharding.h"

namespace snug::setup {

struct Engine;

// Allocates what is shared among the engine's mesh. Null where every process has the model for
// itself. Throws UserError for an optimizer or a technique that cannot be shared so.
std::unique_ptr<exec::Sharding> make_sharding(const config::Recipe& recipe, const Engine& engine);

}  // namespace snug::setup
