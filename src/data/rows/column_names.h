// The usual column names of captions and pictures.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace snug::data {

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
