// Picture files with a metadata.jsonl or metadata.csv (or such a file with another name) that lists
// file names and captions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/pictures/picture_rows.h"

namespace snug::data {

struct PictureFolderOptions {
  std::filesystem::path path;  // a folder, or the .jsonl or .csv itself
  std::string split =
      "train";  // a folder in `path` with a metadata file of its own, if there is one
  std::string image_column = "auto";
  std::string text_column = "auto";
  bool captions_needed = true;  // false: captions are optional
};

// Throws UserError that says what the folder contains instead.
std::shared_ptr<const PictureRows> open_picture_folder(const PictureFolderOptions& options);

}  // namespace snug::data
