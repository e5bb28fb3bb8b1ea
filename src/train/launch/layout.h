// Resolves a recipe's number of devices, nodes and threads, depending on who started this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/dist/world.h"
#include "recipe/recipe.h"

namespace snug::launch {

// For a process that the user started: devices = auto becomes the number of GPUs, and --hosts sets
// devices and num_nodes unless they are given. Throws UserError if they contradict each other.
void resolve_alone(recipe::Recipe& recipe, int visible_gpus);

// For one of several processes started by `starter`: the recipe takes their number, and what it
// gives itself must agree. Each process gets its share of the machine's cores.
void resolve_under(recipe::Recipe& recipe, const std::string& starter,
                   const dist::Position& position);

bool is_single(const recipe::Recipe& recipe);

}  // namespace snug::launch
