// SPDX-License-Identifier: Apache-2.0
#include "data/pictures/picture_text.h"

#include <fmt/format.h>

namespace snug::data {

int64_t count_marks(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; (at = text.find(kPictureMark, at)) != text.npos; at += kPictureMark.size())
    ++count;
  return count;
}

std::string without_marks(std::string text) {
  for (size_t at = text.find(kPictureMark); at != std::string::npos; at = text.find(kPictureMark))
    text.erase(at, kPictureMark.size());
  return text;
}

std::string text_of_picture(const Grid& grid, int64_t places) {
  constexpr std::string_view kBorder = "<fake_token_around_image>";
  std::string text;
  const auto add = [&](const std::string& what) {
    text.append(kBorder).append(what);
    for (int64_t i = 0; i < places; ++i) text.append(kPictureMark);
  };
  for (int64_t row = 1; row <= grid.rows; ++row) {
    for (int64_t column = 1; column <= grid.columns; ++column)
      add(fmt::format("<row_{}_col_{}>", row, column));
    text += "\n";
  }
  if (grid.rows > 0) text += "\n";
  add("<global-img>");
  return text.append(kBorder);
}

}  // namespace snug::data
