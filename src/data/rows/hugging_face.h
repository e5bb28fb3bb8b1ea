// Parquet files and Hugging Face data sets on disk: folders written by save_to_disk (Arrow stream
// files, memory-mapped) and folders of Parquet files, read by row group. The build uses
// hugging_face_arrow.cpp if Arrow's C++ libraries are available, else arrow_stub.cpp, which
// throws.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/pictures/picture_rows.h"
#include "data/rows/rows.h"

namespace snug::data {

struct HuggingFaceOptions {
  std::filesystem::path path;
  std::string split = "train";
  std::string image_column = "auto";  // auto: what looks like pictures
  std::string text_column = "auto";   // auto: text, caption, …
  bool captions_needed = true;        // false: captions are optional
};

// The data files of one split, in order: all .arrow or all .parquet. Throws UserError with the
// splits found.
std::vector<std::filesystem::path> hugging_face_files(const std::filesystem::path& path,
                                                      const std::string& split);

// Opens pictures with captions; null if image_column is "auto" and no column holds pictures.
std::shared_ptr<const PictureRows> open_hugging_face_pictures(const HuggingFaceOptions& options);

// Reads rows as read_rows() does. Names of pictures are relative to the file's folder.
std::vector<Row> read_hugging_face_rows(const HuggingFaceOptions& options,
                                        const Columns& columns = {});

// The text of a .gz or .zst file.
std::string read_compressed(const std::filesystem::path& path);

// The rows of one Parquet file.
bool parquet_available();
std::vector<Row> read_parquet_rows(const std::filesystem::path& path, const Columns& columns);

}  // namespace snug::data
