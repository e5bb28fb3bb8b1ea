// Rows out of a Parquet file. The build picks parquet_arrow.cpp where Arrow's C++ libraries are at
// hand, else parquet_stub.cpp, which refuses.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "data/rows.h"

namespace snug::data {

bool parquet_available();
std::vector<Row> read_parquet_rows(const std::filesystem::path& path, const Columns& columns);

}  // namespace snug::data
