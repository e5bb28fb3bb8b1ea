// Short convolutions within each document (core/kernels/short_conv.h), of which the input alone is
// kept for backward.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/kernels/short_conv.h"

namespace snug::ops {

struct ShortConv {
  kernels::ConvForm form = kernels::ConvForm::Gates;
  at::Tensor weight;  // (F, K)
  at::Tensor bias;    // (F) or undefined
};

// x (N, F), or with gates (N, 3F), which holds b, c and x side by side; positions (N) int32, from 0
// in each document -> (N, F) in x's type.
at::Tensor short_conv(const at::Tensor& x, const ShortConv& convolution,
                      const at::Tensor& positions);

// The same for one more row of each of S sequences. `before` (S, K-1, F): what convolved_rows()
// gave for the rows before; the new row is added to it, the oldest leaves. No gradient.
at::Tensor short_conv_step(const at::Tensor& x, const ShortConv& convolution, at::Tensor& before);

// What the next row of each of S sequences of equal length, x as above, reads of those before: what
// is convolved of the last `count` rows, zeros before the first: (S, count, F).
at::Tensor convolved_rows(const at::Tensor& x, kernels::ConvForm form, int64_t sequences,
                          int64_t count);

}  // namespace snug::ops
