// Which blocks of a model a recipe means: "none", "all", "every:3" or a list such as "0,2,8-11".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace snug::recipe {

// Whether `choice` can be read.
bool is_block_choice(const std::string& choice);

// chosen[i]: whether block i is meant. "every:K" means blocks 0, K, 2K, … Words that choose no
// blocks by number (none, selective) choose none. Throws UserError for blocks that are not there.
std::vector<bool> chosen_blocks(const std::string& choice, int64_t num_blocks);

}  // namespace snug::recipe
