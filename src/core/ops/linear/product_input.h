// The input of a product with a weight: a tensor, its activation, or the activation of a gate times
// another tensor. Only the operands are saved, and the backward recomputes the value, so that an
// MLP's widest tensor exists only during its product.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "core/ops/elementwise.h"

namespace snug::ops {

struct ProductInput {
  at::Tensor x;                          // (N, F)
  std::optional<at::Tensor> up;          // (N, F), with an activation
  std::optional<Activation> activation;  // of x; none: x itself

  // Whether the backward needs x (and up).
  bool keeps(bool value_is_needed) const { return value_is_needed || activation.has_value(); }
  at::Tensor value() const;
  // The gradients of x and up (undefined without up) from the value's gradient. They may overwrite
  // d_value, and for a gate also x and up, which are outputs of products that nothing else needs.
  std::pair<at::Tensor, at::Tensor> gradients(const at::Tensor& d_value) const;
};

}  // namespace snug::ops
