// The faults of a recipe are collected and thrown together, so that all can be mended at once; and
// the option that an unknown key was probably meant to be.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/options/row.h"

namespace snug::recipe {

// Throws a UserError with the one fault, or with a list of the first 50. Does nothing without
// faults.
void throw_faults(std::vector<std::string> faults, const std::string& where);

// The key that was probably meant by `key`, which no row has: the same word in another group
// (max_norm for train.max_norm), another trainer's name for it (save_steps), the only one with
// this part (beams for num_beams), or the nearest spelling. Empty: none.
std::string near_key(std::string_view key, const std::vector<Row>& rows);

}  // namespace snug::recipe
