// Stands in for parquet_arrow.cpp in a build without Arrow.
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "data/parquet.h"

namespace snug::data {

bool parquet_available() { return false; }

std::vector<Row> read_parquet_rows(const std::filesystem::path& path, const Columns&) {
  throw UserError(
      "{}: this build cannot read Parquet, because Arrow was not found when it was configured; "
      "configure again with -DSNUG_ARROW_DIR, or convert the file to .jsonl",
      path.string());
}

}  // namespace snug::data
