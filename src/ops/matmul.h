// Matrix products on the device of the operands.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace snug::ops {

enum class Into { Overwrite, Accumulate };

// out (m, n) = or += a (m, k) · b (k, n). Operands may be transposed views; `out` has unit column
// stride. The types of a, b and out may differ on the CPU; sums are float32, rounded once.
void matmul_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Into into,
                 float alpha = 1.0F);

// A new (m, n) tensor of `type`.
at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, at::ScalarType type);

// What float32 scratch is best cast to before it is multiplied with operands of `type`: that type
// where the processor multiplies it faster than float32, else float32.
at::ScalarType scratch_type(at::ScalarType type);

}  // namespace snug::ops
