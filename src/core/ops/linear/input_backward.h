// The backward of linear layers that read one input, without autograd.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "core/ops/linear/matmul.h"
#include "core/ops/linear/projection.h"

namespace snug::ops {

// Adds the gradients of each layer's own tensors, and sums up the input's. An input without an
// activation is used before the gradient of its size is allocated; one with an activation after the
// activation's backward, which makes the value again in the place of what it read.
class InputBackward {
 public:
  // `needs_value`: whether a layer's own tensors need the input.
  InputBackward(ProductInput input, bool needs_value, bool needs_gradient);

  // d_out (N, out); `inner` as in Projector::forward. With an activation there is one layer.
  void add(const Projection& projection, const at::Tensor& d_out, const at::Tensor& inner);

  // Gradients of x and up (N, in); undefined where there are none.
  std::pair<at::Tensor, at::Tensor> gradients() const;

 private:
  void add_input_gradient(const Projector& projector, const at::Tensor& d_out,
                          const at::Tensor& d_inner, int64_t in_features);

  ProductInput input_;
  bool needs_value_, needs_gradient_;
  at::Tensor value_;    // of the input
  at::Tensor d_value_;  // so far
  at::Tensor d_x_, d_up_;
};

}  // namespace snug::ops
