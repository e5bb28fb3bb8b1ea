// Rotary position embedding (Su et al. 2021).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/kernels/cpu/rope_tables.h"
#include "core/kernels/rope.h"

namespace snug::ops {

// cos and sin, float32 (max positions, rotated / 2). Undefined tensors: no rotation.
struct RopeTables {
  at::Tensor cos, sin;
  at::Tensor query_scale;  // (max positions, 1) float32, by which queries are multiplied besides
  kernels::RopePairs paired = kernels::RopePairs::Halves;
  int64_t first = 0;  // of a head's elements, the first that rotates
};

// Makes tables on `device` for `max_positions` positions and heads that rotate `dim` elements.
RopeTables make_rope_tables(const kernels::cpu::RopeScaling& scaling, int64_t dim,
                            int64_t max_positions, at::Device device);

// Rotates 2 * cos.size(1) elements of each head of x (N, H, D), from `first` on, in place by the
// angles of `positions` (N) int32; Inverse is the backward pass. No autograd.
void rotate_in_place(const at::Tensor& x, const at::Tensor& positions, const RopeTables& tables,
                     kernels::RopeDirection direction);
// The same for queries and keys of the same tokens: (N, H, D) and (N, H', D).
void rotate_in_place(const at::Tensor& q, const at::Tensor& k, const at::Tensor& positions,
                     const RopeTables& tables, kernels::RopeDirection direction);

// A rotated copy of x (N, H, D), whose heads lie side by side, with a gradient.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions, const RopeTables& tables);

}  // namespace snug::ops
