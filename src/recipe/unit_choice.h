// Which blocks of a model a recipe means: "none", "all", "every:3" or a list such as "0,2,8-11".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace snug::recipe {

// What activation_checkpointing says: some blocks by period or number, all, none, or of every block
// what is cheap to compute again.
enum class Checkpointing { None, All, Selective, Blocks };
// None for a text that cannot be read.
std::optional<Checkpointing> read_checkpointing(const std::string& choice);
// The same for a recipe that has been checked.
Checkpointing checkpointing_of(const Recipe& recipe);

// chosen[i]: whether block i is meant. "every:K" means blocks 0, K, 2K, … Words that choose no
// blocks by number (none, selective) choose none. Throws UserError for blocks that are not there.
std::vector<bool> chosen_blocks(const std::string& choice, int64_t num_blocks);

}  // namespace snug::recipe
