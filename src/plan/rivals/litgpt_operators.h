// The operators of LitGPT's eager training that libtorch has no meta kernel for, or that are
// another library's: what they allocate and what they keep for their backward, without computing
// anything.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace snug::plan::litgpt {

// ids (B, T), weight (V, D) -> (B, T, D). Its gradient is as large as the table.
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight);

// x (B, T, D), weight and bias (D).
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// q, k, v (B, H, T, D). `fused`: torch's fused kernels for the type, else its plain products.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool fused);

// Keeps a mask of one byte an element, as on a GPU.
at::Tensor dropout(const at::Tensor& x);

// x (B, C, T), weight (O, C / groups, 1) -> (B, O, T)
at::Tensor conv1d(const at::Tensor& x, const at::Tensor& weight);

// x (B, T, C) -> (B, T, width), zeros in the columns that x does not have. Keeps x, as
// Tensor.index_copy_ does.
at::Tensor spread_columns(const at::Tensor& x, int64_t width);

// x (B, T, I) times a weight (O, I) of 4-bit codes, which is dequantized to float16 and then cast.
// `quantized_scales`: the scales are dequantized before it, to float32. Keeps nothing but codes.
at::Tensor product_4bit(const at::Tensor& x, const at::Tensor& codes, int64_t outputs,
                        bool quantized_scales);

}  // namespace snug::plan::litgpt
