// y = x·Wᵀ + b, with the weight's gradient added directly to its buffer: no second array of the
// weight's size exists, and accumulation over micro-batches costs nothing extra. For adapters see
// core/ops/linear/projection.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/ops/linear/product_input.h"
#include "core/ops/linear/projection.h"

namespace snug::ops {

// x (N, in) -> (N, out) of x's type. Products run in x's type; a weight of another type is cast for
// the duration of the product (mixed precision). Saves x if weight or adapter are trained, and x·Aᵀ
// (N, r) of an adapter; nothing otherwise.
at::Tensor linear(const at::Tensor& x, const Projection& projection);

// The same for an input that is recomputed in the backward.
at::Tensor linear(const ProductInput& input, const Projection& projection);

// The same casting and gradient handling, for other operators that contain a product.
at::Tensor weight_in(at::ScalarType type, const at::Tensor& weight);
// alpha · d_outᵀ·x; with `terms_of`, summed over the ranks of that group.
void add_weight_gradient(const at::Tensor& weight, const at::Tensor& d_out, const at::Tensor& x,
                         float alpha = 1.0F, dist::Group* terms_of = nullptr);
void add_bias_gradient(const at::Tensor& bias, const at::Tensor& d_out,
                       dist::Group* terms_of = nullptr);

}  // namespace snug::ops
