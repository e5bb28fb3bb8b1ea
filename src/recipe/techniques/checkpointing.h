// The blocks whose forward runs again: activation_checkpointing ("none", "all", "every:3",
// "0,2,8-11").
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace snug::recipe {

// Selective: recompute only the cheap operations of every block. Blocks: some blocks, by period or
// number.
enum class Checkpointing { None, All, Selective, Blocks };
// std::nullopt for a text that cannot be read.
std::optional<Checkpointing> read_checkpointing(const std::string& choice);
// The same, of a recipe that has been checked.
Checkpointing checkpointing_of(const Recipe& recipe);
// The blocks of a model that run forward again: chosen_blocks() of the recipe's.
std::vector<bool> repeated_blocks(const Recipe& recipe, int64_t num_blocks);

// chosen[i]: whether block i is selected. "every:K" selects blocks 0, K, 2K, …; none and selective
// select no block. Throws UserError for blocks that the model does not have.
std::vector<bool> chosen_blocks(const std::string& choice, int64_t num_blocks);

}  // namespace snug::recipe
