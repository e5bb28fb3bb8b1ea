// Stands in for hugging_face_arrow.cpp in a build without Arrow.
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "data/hugging_face.h"

namespace snug::data {
namespace {

[[noreturn]] void refuse(const HuggingFaceOptions& options) {
  throw UserError(
      "{}: this build cannot read Arrow or Parquet, because Arrow was not found when it was "
      "configured; configure again with -DSNUG_ARROW_DIR",
      options.path.string());
}

}  // namespace

std::shared_ptr<const PictureRows> open_hugging_face_pictures(const HuggingFaceOptions& options) {
  refuse(options);
}

std::vector<Row> read_hugging_face_rows(const HuggingFaceOptions& options) { refuse(options); }

}  // namespace snug::data
