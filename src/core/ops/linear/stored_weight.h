// A layer's weight as it is stored, plain or in one of the formats of
// core/kernels/quantized_matrix.h, with what depends on that: products, rows,
// quantizing. A quantized weight is frozen, and no product makes a dequantized copy of all of it:
// on the CPU it dequantizes each tile while packing it; on cuda a chunk of rows is dequantized into
// scratch and multiplied by cuBLAS. As in bitsandbytes, weights are dequantized to x's type.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <utility>

#include "core/kernels/cpu/quantized.h"
#include "core/ops/linear/matmul.h"

namespace snug::ops {

using kernels::QuantizedFormat;

struct StoredWeight {
  at::Tensor data;  // (rows, cols), or uint8, (quantized_bytes(format, rows, cols))
  std::optional<QuantizedFormat> format;  // none: plain
  int64_t rows = 0, cols = 0;
  // Where a plain weight's copy in the type of products is kept between them; null: nowhere.
  std::shared_ptr<at::Tensor> kept_cast;

  StoredWeight() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a plain weight is its tensor.
  StoredWeight(at::Tensor plain) : data(std::move(plain)), rows(data.size(0)), cols(data.size(1)) {}
  StoredWeight(at::Tensor bytes, QuantizedFormat quantized, int64_t num_rows, int64_t num_cols)
      : data(std::move(bytes)), format(quantized), rows(num_rows), cols(num_cols) {}
};

// The weight for products with inputs of this type: a plain one is cast, or taken from where its
// copy is kept.
StoredWeight weight_in(at::ScalarType type, const StoredWeight& weight);

// out (N, rows) = or += alpha * x (N, cols) · Wᵀ. x and out have unit column stride (x may be
// transposed on the CPU); their types may differ on the CPU.
void product_into(const at::Tensor& out, const at::Tensor& x, const StoredWeight& weight, Into into,
                  float alpha = 1.0F);

// d_x (N, cols) = or += alpha * d_out (N, rows) · W.
void input_gradient_into(const at::Tensor& d_x, const at::Tensor& d_out, const StoredWeight& weight,
                         Into into, float alpha = 1.0F);

// A new (rows, cols) tensor of `type`, or rows [first, first + count) of it.
at::Tensor dequantize(const StoredWeight& weight, at::ScalarType type);
at::Tensor dequantize_rows(const StoredWeight& weight, at::ScalarType type, int64_t first,
                           int64_t count);

// Quantizes a contiguous (rows, cols) tensor; the result is on its device, but the host does the
// work. (kernels::cpu::Quantizer does the same for a weight that is read in chunks.)
StoredWeight quantize(const at::Tensor& weight, QuantizedFormat format);

}  // namespace snug::ops
