// Resizes pictures with antialiasing (the filter widens with the reduction) and fixed-point
// weights: first the width, then the height, rounded to bytes in between. Bilinear and bicubic
// match torchvision's antialiased resize of uint8 on the CPU byte for byte (used by transformers
// 5): 16-bit weights. The other filters match Pillow's Image.resize: 22 fractional bits. (Pillow 13
// swaps the order for pictures whose height shrinks far more than their width; the versions that
// models were trained with do not.) libtorch's function gives the same bytes in a third of the
// time, but has two of the six filters, and its memory in worker threads would count against the
// run's budget.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::data {

// Values as in Pillow and preprocessor_config.json.
enum class Resampling { Nearest = 0, Lanczos = 1, Bilinear = 2, Bicubic = 3, Box = 4, Hamming = 5 };

struct Extent {
  int64_t width = 0, height = 0;
};

// `pixels` (height, width, 3) -> `out` (height, width, 3).
void resize(const uint8_t* pixels, Extent from, Resampling resampling, uint8_t* out, Extent to);

}  // namespace snug::data
