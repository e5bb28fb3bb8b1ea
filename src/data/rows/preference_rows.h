// Rows that say which of two answers is better, in the forms of TRL, ShareGPT, LLaMA-Factory and
// ms-swift.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

// Columns of rows that say which answer is better.
std::vector<std::string> preference_columns();
bool is_preference_column(const std::string& name);

// The chosen answer's row, with the rejected one's in `others`. Both have the same prompt: a column
// of its own (text or turns), "messages" or "conversations" before the answers, "instruction" and
// "input", or else what both begin with. Throws UserError.
Row preference_from_json(const nlohmann::ordered_json& object, const Columns& columns,
                         const std::string& where);

// The row of an answer alone, in the column `answer`, behind the prompt that a chosen one there
// would have. Throws UserError.
Row answered_row(const nlohmann::ordered_json& object, const char* answer, const Columns& columns,
                 const std::string& where);

}  // namespace snug::data
