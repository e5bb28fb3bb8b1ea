// Pictures made smaller or larger as Pillow's Image.resize does it, byte for byte: a filter as wide
// as the picture shrinks, weights of 22 fractional bits, first each row is made narrower or wider,
// then the columns are made shorter or longer, with bytes between the two. (Pillow 13 turns that
// order round for pictures that lose far more of their height than of their width; what models were
// trained with, older Pillow and torchvision, does not.)
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::data {

// Numbers as in Pillow and preprocessor_config.json.
enum class Resampling { Nearest = 0, Lanczos = 1, Bilinear = 2, Bicubic = 3, Box = 4, Hamming = 5 };

struct Extent {
  int64_t width = 0, height = 0;
};

// `pixels` (height, width, 3) -> `out` (height, width, 3).
void resize(const uint8_t* pixels, Extent from, Resampling resampling, uint8_t* out, Extent to);

}  // namespace snug::data
