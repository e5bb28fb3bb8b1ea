// Picture files with a metadata.jsonl or metadata.csv (or such a file with another name) that lists
// file names and captions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// These files as rows without captions.
std::shared_ptr<const PictureRows> picture_files(std::vector<std::filesystem::path> files);

// The usual column names of captions and pictures.
inline constexpr std::array<std::string_view, 10> kTextColumns = {
    "text",      "caption", "captions", "description", "sentence",
    "sentences", "txt",     "alt_text", "alt",         "caption_text"};
inline constexpr std::array<std::string_view, 11> kPathColumns = {
    "file_name", "image",     "image_path", "file",       "path",          "filename",
    "filepath",  "file_path", "image_file", "image_name", "image_filename"};

// Returns `wanted` if it is in `found`; for "auto" the first usual name that is, or "" if none is.
// Throws UserError with the columns found.
std::string choose_column(const std::string& wanted, const std::vector<std::string>& found,
                          std::span<const std::string_view> usual, const char* option,
                          const std::string& where);

}  // namespace snug::data
