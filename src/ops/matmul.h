// Matrix products on the device of the operands. On CPUs without bfloat16 arithmetic our own kernel
// converts while it packs; where the processor multiplies bfloat16 itself, libtorch's oneDNN does
// it. On cuda it is cuBLAS, through libtorch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace snug::ops {

enum class Into { Overwrite, Accumulate };

// out (m, n) = or += a (m, k) · b (k, n). Operands may be transposed views; `out` has unit column
// stride. Sums are float32, rounded once. The types of a, b and out may differ on the CPU; on cuda
// a and b have one type, and out has it too or is float32.
void matmul_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Into into,
                 float alpha = 1.0F);

// A new (m, n) tensor of `type`.
at::Tensor matmul(const at::Tensor& a, const at::Tensor& b, at::ScalarType type);

// The type in which x·b, b of x's type, is best written when it is only scratch on the way to
// float32: float32, unless the library multiplies bfloat16 itself and writes the same.
at::ScalarType product_type(const at::Tensor& x);
// The type which the other operand of a product with x must have, where it may be chosen.
at::ScalarType operand_type(const at::Tensor& x);

}  // namespace snug::ops
