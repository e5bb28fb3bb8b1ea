// Hugging Face data sets on disk: folders of save_to_disk (Arrow stream files, memory-mapped), and
// folders of Parquet files, read by row group. The build picks hugging_face_arrow.cpp where Arrow's
// C++ libraries are at hand, else hugging_face_stub.cpp, which refuses.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/picture_rows.h"
#include "data/rows.h"

namespace snug::data {

struct HuggingFaceOptions {
  std::filesystem::path path;
  std::string split = "train";
  std::string image_column = "auto";  // auto: what looks like pictures
  std::string text_column = "auto";   // auto: text, caption, …
  bool captions_needed = true;        // false: pictures alone will do
};

// The data files of one split, in order: all .arrow or all .parquet. Throws UserError that lists
// the splits there are.
std::vector<std::filesystem::path> hugging_face_files(const std::filesystem::path& path,
                                                      const std::string& split);

// Pictures with captions; null where image_column is "auto" and no column holds pictures.
std::shared_ptr<const PictureRows> open_hugging_face_pictures(const HuggingFaceOptions& options);

// Rows of text: instruction and output, or chats.
std::vector<Row> read_hugging_face_rows(const HuggingFaceOptions& options);

}  // namespace snug::data
