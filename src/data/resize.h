// Pictures made smaller or larger: a filter as wide as the picture shrinks, weights in fixed point;
// first each row is made narrower or wider, then the columns are made shorter or longer, with bytes
// between the two. Bilinear and bicubic have torchvision's bytes (of its antialiased resize of
// bytes on the CPU, which transformers 5 takes): weights of 16 bits. The others have those of
// Pillow's Image.resize: 22 fractional bits. (Pillow 13 turns the order of the sides round for
// pictures that lose far more of their height than of their width; what models were trained with
// does not.) libtorch's own function, the same bytes in a third of the time, knows two of the six
// filters, and what it takes in worker threads would count against a run's budget of memory.
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
