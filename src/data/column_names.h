// How captions and pictures are usually called.
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

// `wanted` if it is among `found`, or for "auto" the first usual name that is; "" where "auto"
// finds none. Throws UserError that lists what was found.
std::string choose_column(const std::string& wanted, const std::vector<std::string>& found,
                          std::span<const std::string_view> usual, const char* option,
                          const std::string& where);

}  // namespace snug::data
