// Replaces hugging_face_arrow.cpp in a build without Arrow.
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "data/rows/hugging_face.h"

namespace snug::data {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path) {
  throw UserError(
      "{}: this build cannot read Arrow or Parquet, because Arrow was not found when it was "
      "configured; configure again with -DSNUG_ARROW_DIR",
      path.string());
}

}  // namespace

std::string read_compressed(const std::filesystem::path& path) {
  throw UserError(
      "{}: this build cannot read compressed files, because Arrow was not found when it was "
      "configured; configure again with -DSNUG_ARROW_DIR, or decompress the file",
      path.string());
}

bool parquet_available() { return false; }

std::vector<Row> read_parquet_rows(const std::filesystem::path& path, const Columns&) {
  throw UserError(
      "{}: this build cannot read Parquet, because Arrow was not found when it was configured; "
      "configure again with -DSNUG_ARROW_DIR, or convert the file to .jsonl",
      path.string());
}

std::shared_ptr<const PictureRows> open_hugging_face_pictures(const HuggingFaceOptions& options) {
  refuse(options.path);
}

std::vector<Row> read_arrow_rows(const std::vector<std::filesystem::path>& files, const Columns&) {
  refuse(files.front());
}

}  // namespace snug::data
