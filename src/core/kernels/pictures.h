// Normalizes pictures and splits them into patches, the input of a vision encoder's first product.
//   out[((s·P + p)·3 + c)·q² + row·q + column] = (pixel / 255 - mean[c]) / std[c]
// for picture s, patch p (from left to right, top to bottom) of q × q pixels, channel c. Pixels at
// the right and the bottom that fill no patch are left out, as by a convolution. A pixel has one of
// 256 values, so this is a lookup in a table computed in double.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels {

struct ImagePatches {
  Scalar type = Scalar::F32;  // of out
  int64_t pictures = 0;       // S
  int64_t height = 0;
  int64_t width = 0;
  int64_t patch_size = 0;  // q
  std::array<float, 3> mean{}, std{};
  const uint8_t* pixels = nullptr;  // (S, height, width, 3)
  void* out = nullptr;              // (S·P, 3·q·q)
  int num_threads = 0;

  int64_t patches_across() const { return width / patch_size; }
  int64_t patches_per_picture() const { return height / patch_size * patches_across(); }
};

namespace cpu {
void image_patches(const ImagePatches& args);
}  // namespace cpu

}  // namespace snug::kernels
