// What a product with a weight reads: a tensor as it is, its activation, or the activation of a
// gate times another tensor. What it is made of is kept for the backward, which makes it again: an
// MLP's widest tensor exists only while its product runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "ops/elementwise.h"

namespace snug::ops {

struct ProductInput {
  at::Tensor x;                          // (N, F)
  std::optional<at::Tensor> up;          // (N, F), with an activation
  std::optional<Activation> activation;  // of x; none: x itself

  // What the backward needs of it, whether or not it needs the value too.
  bool keeps(bool value_is_needed) const { return value_is_needed || activation.has_value(); }
  at::Tensor value() const;
  // The gradients of x and up (undefined without) from the value's, whose memory may take x's. A
  // gate and its factor are outputs of products, which nothing else needs: theirs takes their own.
  std::pair<at::Tensor, at::Tensor> gradients(const at::Tensor& d_value) const;
};

}  // namespace snug::ops
