// The output head and its loss as one operator, a chunk of rows at a time, so that logits never
// exist whole: neither forward nor backward. The gradients are computed in the forward pass, while
// each chunk's logits are at hand; the backward pass only hands them on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/projection.h"

namespace snug::ops {

struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  double scale = 1.0;  // of the gradient; the loss itself is returned as a plain sum
  double label_smoothing = 0;
  double z_loss = 0;  // Chowdhery et al. 2022 (PaLM), section 5
};

// x (N, D), head (V, D), targets (N) int32 -> sum over counted rows of -log
// softmax(head(x))[target], smoothed and with the z-loss as the options say, float32 (1). With
// gradients enabled, d(scale * loss) goes into the head's buffers and into x's gradient whatever
// gradient arrives from above: call backward with ones.
at::Tensor linear_cross_entropy(const at::Tensor& x, const Projection& head,
                                const at::Tensor& targets, const CrossEntropyOptions& options);

}  // namespace snug::ops
