// Reads rows from a Parquet file. The build uses parquet_arrow.cpp if Arrow's C++ libraries are
// available, else parquet_stub.cpp, which throws.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "data/rows/rows.h"

namespace snug::data {

bool parquet_available();
std::vector<Row> read_parquet_rows(const std::filesystem::path& path, const Columns& columns);

}  // namespace snug::data
