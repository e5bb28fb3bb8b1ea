// Parquet, both ways it is read: rows of text, and columns of pictures by row groups. Readers tell
// it by its ending, so the bytes go into a file that has it.
// SPDX-License-Identifier: Apache-2.0
#include "data/rows/hugging_face.h"

#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "data/rows/arrow_rows.h"
#include "fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;
using snug::UserError;

constexpr int64_t kMostRows = 200;

// One for each process, in memory.
const fs::path& parquet_file() {
  static const fs::path path =
      fs::path("/dev/shm") / ("fuzz-" + std::to_string(::getpid()) + ".parquet");
  return path;
}

size_t read_cell(const snug::data::ArrowRows& rows, int field, int64_t row) {
  const snug::data::ArrowRows::Chunk chunk = rows.at(field, row);
  const arrow::DataType& type = *rows.schema()->field(field)->type();
  size_t sum = snug::data::json_at(*chunk.column, chunk.row).size();
  if (snug::data::is_caption_type(type))
    sum += snug::data::caption_at(*chunk.column, chunk.row).value_or("").size();
  if (!snug::data::is_picture_type(type)) return sum;
  sum += snug::data::picture_path_at(*chunk.column, chunk.row).size();
  for (const std::byte byte : snug::data::picture_at(chunk.column, chunk.row, "/nowhere").bytes)
    sum += static_cast<size_t>(byte);
  return sum;
}

size_t read_columns(const fs::path& path) {
  const auto rows = snug::data::open_arrow_rows(path, std::make_shared<snug::data::GroupCache>());
  size_t sum = 0;
  for (int field = 0; field < rows->schema()->num_fields(); ++field)
    for (int64_t row = 0; row < std::min(rows->count(), kMostRows); ++row) {
      try {
        sum += read_cell(*rows, field, row);
      } catch (const UserError&) {
        break;  // its row group is broken; another column's may not be
      }
    }
  return sum;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fs::path& path = parquet_file();
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  size_t sum = 0;
  try {
    sum += snug::data::read_parquet_rows(path, {}).size();
  } catch (const UserError&) {
  }
  try {
    sum += read_columns(path);
  } catch (const UserError&) {
  }
  fs::remove(path);
  return sum == 1 ? -1 : 0;  // a sum that is used keeps the reads
}
