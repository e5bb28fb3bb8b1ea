// Reads rows from CSV and TSV, whose first line names the columns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

// `name`: the file's name in errors.
std::vector<Row> rows_from_csv(std::string_view text, char separator, const Columns& columns,
                               const std::string& name);

}  // namespace snug::data
