// How captions and pictures are usually called.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace snug::data {

inline constexpr std::array<std::string_view, 7> kTextColumns = {
    "text", "caption", "captions", "description", "sentence", "sentences", "txt"};
inline constexpr std::array<std::string_view, 5> kPathColumns = {"file_name", "image", "image_path",
                                                                 "file", "path"};

// `wanted` if it is among `found`, or for "auto" the first usual name that is; "" where "auto"
// finds none. Throws UserError that lists what was found.
std::string choose_column(const std::string& wanted, const std::vector<std::string>& found,
                          std::span<const std::string_view> usual, const char* option,
                          const std::string& where);

}  // namespace snug::data
