// Rows that say of one answer whether it is good, in the forms of TRL and LLaMA-Factory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

// Columns that hold the verdict.
std::vector<std::string> rating_columns();
bool is_rating_column(const std::string& name);
// Whether a value says good or bad: true, false, 1, 0, or one of these as a text.
bool is_verdict(const nlohmann::ordered_json& value);

// A row with its verdict in `desirable`; of a chosen and a rejected answer the former's, with the
// latter's in `others`, for unpaired(). Only the last answer of a chat counts. Throws UserError.
Row rated_from_json(const nlohmann::ordered_json& object, const Columns& columns,
                    const std::string& where);

}  // namespace snug::data
