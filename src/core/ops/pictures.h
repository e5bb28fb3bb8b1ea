// Pixels to a vision encoder's patches, and picture features into the rows of a text. Shapes: S
// pictures of (height, width, 3) uint8; P patches a picture; N rows of text; D features.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace snug::ops {

struct PatchOptions {
  int64_t patch_size = 14;
  std::array<float, 3> mean{}, std{};  // of red, green, blue in 0..1
};

// (value / 255 - mean) / std of every pixel, cut into squares from left to right and top to bottom,
// without what fills none: (S·P, 3·patch·patch) of `type`, within a patch in the order (channel,
// row, column), as a convolution's weight has it. No gradient.
at::Tensor image_patches(const at::Tensor& pixels, const PatchOptions& options,
                         at::ScalarType type);

// `hidden` (N, D) with row index[i] replaced by rows[i]; rows (R, D), index (R) int32 without
// duplicates. The replaced rows of `hidden` get a gradient of zero.
at::Tensor replace_rows(const at::Tensor& hidden, const at::Tensor& rows, const at::Tensor& index);

// Without autograd: row index[i] of `to` becomes rows[i].
void put_rows(const at::Tensor& to, const at::Tensor& rows, const at::Tensor& index);

}  // namespace snug::ops
