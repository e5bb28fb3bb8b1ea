// How many devices a recipe comes to, given who started this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/dist/world.h"
#include "recipe/recipe.h"

namespace snug::launch {

// For a process that a person started: devices = auto becomes the number of GPUs, --hosts says
// devices and num_nodes where nothing else does. Throws UserError where they contradict each other.
void resolve_alone(recipe::Recipe& recipe, int visible_gpus);

// For one of several that `starter` started: what the recipe leaves open is as they are; what it
// says must be so. Each gets its share of the machine's cores.
void resolve_under(recipe::Recipe& recipe, const std::string& starter,
                   const dist::Position& position);

bool is_single(const recipe::Recipe& recipe);

}  // namespace snug::launch
