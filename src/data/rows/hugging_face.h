// Parquet files and Hugging Face data sets on disk: folders written by save_to_disk (Arrow stream
// files, memory-mapped), and those that the hub has, of Parquet files (read by row group), JSON,
// JSONL or CSV. The build reads Arrow and Parquet with hugging_face_arrow.cpp if Arrow's C++
// libraries are available, else arrow_stub.cpp throws.
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
  std::string subset = {};            // of the README's configurations; empty: the default
  std::string image_column = "auto";  // auto: what looks like pictures
  std::string text_column = "auto";   // auto: text, caption, …
  bool captions_needed = true;        // false: captions are optional
};

// The folder of a data set that is named as on the hub: `path` itself if it is there, else
// data/ORG/NAME, where snug download --data puts it. Throws UserError if neither is.
std::filesystem::path hugging_face_folder(const std::filesystem::path& path);

// The data files of one split, in order and of one format. By the README's configurations, else by
// names of files and folders ("train-00000-of-00002", "validation.csv", "test/0000"), in which dev,
// val and valid are validation. Throws UserError with the splits found.
std::vector<std::filesystem::path> hugging_face_files(const HuggingFaceOptions& options);

// Which of a repository's files that is, as globs; none: by their names, all of them.
std::vector<std::string> wanted_patterns(const std::filesystem::path& readme,
                                         const HuggingFaceOptions& options);

// Opens pictures with captions; null if image_column is "auto" and no column holds pictures.
std::shared_ptr<const PictureRows> open_hugging_face_pictures(const HuggingFaceOptions& options);

// Reads rows as read_rows() does. Names of pictures are relative to the file's folder.
std::vector<Row> read_hugging_face_rows(const HuggingFaceOptions& options,
                                        const Columns& columns = {});
// Those of Arrow or Parquet files with the same columns.
std::vector<Row> read_arrow_rows(const std::vector<std::filesystem::path>& files,
                                 const Columns& columns);
bool is_arrow_file(const std::filesystem::path& file);  // or Parquet

// The text of a .gz or .zst file.
std::string read_compressed(const std::filesystem::path& path);

// The rows of one Parquet file.
bool parquet_available();
std::vector<Row> read_parquet_rows(const std::filesystem::path& path, const Columns& columns);

}  // namespace snug::data
