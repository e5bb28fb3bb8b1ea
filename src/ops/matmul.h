// Matrix products on the device of the operands. On CPUs without bfloat16 arithmetic our own kernel
// converts while it packs; where the processor multiplies bfloat16 itself, libtorch's oneDNN does
// it.
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

// The type in which a product of two `type` operands is best left when its result is only scratch:
// float32, unless the library multiplies `type` itself and writes the same.
at::ScalarType product_type(at::ScalarType type);

}  // namespace snug::ops
