// Products with frozen weights in 4 or 8 bits, without a dequantized copy of the whole weight. On
// the CPU the product dequantizes each tile while packing it; on cuda a chunk of rows is
// dequantized into scratch and multiplied by cuBLAS. As in bitsandbytes, weights are dequantized to
// x's type.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/kernels/cpu/quantized.h"
#include "core/ops/linear/matmul.h"

namespace snug::ops {

using kernels::cpu::QuantizedFormat;

struct QuantizedWeight {
  at::Tensor bytes;  // uint8, (quantized_bytes(format, rows, cols)); see quantized_layout
  QuantizedFormat format = QuantizedFormat::Nf4;
  int64_t rows = 0, cols = 0;
};

// out (N, rows) = or += alpha * x (N, cols) · Wᵀ. x and out have unit column stride (x may be
// transposed on the CPU); their types may differ on the CPU.
void product_into(const at::Tensor& out, const at::Tensor& x, const QuantizedWeight& weight,
                  Into into, float alpha = 1.0F);

// d_x (N, cols) = or += alpha * d_out (N, rows) · W.
void input_gradient_into(const at::Tensor& d_x, const at::Tensor& d_out,
                         const QuantizedWeight& weight, Into into, float alpha = 1.0F);

// A new (rows, cols) tensor of `type`, or rows [first, first + count) of it.
at::Tensor dequantize(const QuantizedWeight& weight, at::ScalarType type);
at::Tensor dequantize_rows(const QuantizedWeight& weight, at::ScalarType type, int64_t first,
                           int64_t count);

// Quantizes a contiguous (rows, cols) tensor; the result is on its device, but the host does the
// work. (kernels::cpu::Quantizer does the same for a weight that is read in chunks.)
QuantizedWeight quantize(const at::Tensor& weight, QuantizedFormat format);

}  // namespace snug::ops
