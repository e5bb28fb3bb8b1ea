// One JSON object to one row. JSON and Parquet rows both come through here, so both shapes and all
// refusals are the same for either.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/rows.h"

namespace snug::data {

// `where` names file and row in errors: "train.jsonl:17", "train.json: row 3".
Row row_from_json(const nlohmann::json& object, const Columns& columns, const std::string& where);

// Foreign text as a message may show it: at most `max_bytes`, cut between characters, on one line.
std::string shortened(std::string text, size_t max_bytes);

}  // namespace snug::data
