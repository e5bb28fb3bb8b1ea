// The text that stands for a picture which is cut into tiles, as Idefics3Processor writes it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace snug::data {

// The tiles that a picture is cut into; 0 × 0: it stays whole.
struct Grid {
  int64_t rows = 0, columns = 0;
  // What the model sees: the tiles row by row, and behind them the whole, made as small as a tile.
  int64_t num_pictures() const { return rows * columns + 1; }
  bool operator==(const Grid&) const = default;
};

// Where a picture stands in a prompt, and the token that each of its places has.
inline constexpr std::string_view kPictureMark = "<image>";

int64_t count_marks(std::string_view text);
std::string without_marks(std::string text);

// `places`: of each tile.
std::string text_of_picture(const Grid& grid, int64_t places);

}  // namespace snug::data
