// "Did you mean": the option that somebody meant who wrote another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/options/row.h"

namespace snug::recipe {

// The key of the row that was most likely meant by `key`, which no row has: one in another group
// (max_norm for train.max_norm), one that other trainers call so (save_steps), or one that is
// misspelled. Empty when none means the same.
std::string near_key(std::string_view key, const std::vector<Row>& rows);

}  // namespace snug::recipe
