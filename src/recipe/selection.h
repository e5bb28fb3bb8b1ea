// The blocks and components of a model that a recipe selects: activation_checkpointing ("none",
// "all", "every:3", "0,2,8-11") and model.train_parts ("all", "qformer,projection").
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

// chosen[i]: whether block i is selected. "every:K" selects blocks 0, K, 2K, …; none and selective
// select no block. Throws UserError for blocks that the model does not have.
std::vector<bool> chosen_blocks(const std::string& choice, int64_t num_blocks);

// The components that model.train_parts lists, in its order; none for "all".
std::vector<std::string> part_names(const std::string& choice);

// What is wrong with the list, as one sentence; empty: nothing. Which components a model has is
// checked later (models::Model::parts).
std::string part_names_fault(const std::string& choice);

}  // namespace snug::recipe
