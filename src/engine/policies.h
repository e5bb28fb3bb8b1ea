// Makes the policies of a recipe, in the order in which they nest.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "engine/exec/policies/sharding.h"
#include "recipe/recipe.h"

namespace snug::engine {

struct Engine;

// The units of a model whose forward activation checkpointing repeats; a recipe counts blocks.
std::vector<bool> checkpointed_units(const recipe::Recipe& recipe,
                                     const std::vector<nn::UnitKind>& kinds);

// The engine's units, parameters and optimizer must exist already. `sharding` joins the list unless
// it is null. A policy that updates the weights becomes the engine's updater.
exec::Policies make_policies(const recipe::Recipe& recipe, Engine& engine,
                             std::unique_ptr<exec::Sharding> sharding);

}  // namespace snug::engine
