// y = x·Wᵀ + b, with the weight's gradient added directly to its buffer: no second array of the
// weight's size exists, and accumulation over micro-batches costs nothing extra. For adapters see
// core/ops/linear/projection.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/ops/linear/matmul.h"
#include "core/ops/linear/projection.h"

namespace snug::ops {

// x (N, in) -> (N, out) of x's type. Products run in x's type; a weight of another type is cast for
// the duration of the product (mixed precision). Saves x if weight or adapter are trained, and x·Aᵀ
// (N, r) of an adapter; nothing otherwise.
at::Tensor linear(const at::Tensor& x, const Projection& projection);

// The same for an input that is recomputed in the backward.
at::Tensor linear(const ProductInput& input, const Projection& projection);

// The outputs of several layers for one x, in order; x's gradient is one tensor, to which each adds
// its term, rounded to x's type.
std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<Projection>& projections);

// The same casting and gradient handling, for other operators that contain a product.
at::Tensor weight_in(at::ScalarType type, const at::Tensor& weight);
// alpha · d_outᵀ·x; with `terms_of`, summed over the ranks of that group.
void add_weight_gradient(const at::Tensor& weight, const at::Tensor& d_out, const at::Tensor& x,
                         float alpha = 1.0F, dist::Group* terms_of = nullptr);
void add_bias_gradient(const at::Tensor& bias, const at::Tensor& d_out,
                       dist::Group* terms_of = nullptr);

// Sums gradients of several chunks in float32 and rounds once. In 16 bits each addition would round
// the whole sum, with noise that grows with the number of chunks.

// While it lives, operators add gradients of these parameters (core/ops/device/device.h) to float32
// sums if the gradients have a shorter type.
class GradientSums {
 public:
  explicit GradientSums(const std::vector<at::Tensor>& parameters);
  ~GradientSums();  // discards sums without finish()
  GradientSums(const GradientSums&) = delete;
  GradientSums& operator=(const GradientSums&) = delete;

  // Adds the sums to the parameters' gradients.
  void finish();

 private:
  struct Sum {
    at::Tensor parameter;
    at::Tensor gradient, slot;  // of the parameter before
  };

  // Takes the sum from the parameter and restores its gradient and slot.
  static at::Tensor take(Sum& sum);

  std::vector<Sum> sums_;
};

}  // namespace snug::ops
