// Reads rows from JSON text. Only one row at a time is held as a JSON tree.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

// An array of rows, or an object whose "data" is one. `name`: the file's name in errors.
std::vector<Row> rows_from_json(std::string_view text, const Columns& columns,
                                const std::string& name);

// One row per line; blank lines are skipped.
std::vector<Row> rows_from_jsonl(std::string_view text, const Columns& columns,
                                 const std::string& name);

}  // namespace snug::data
