// Operators of eager PyTorch training on a GPU that libtorch has no meta kernel for: what they
// allocate and what they keep for their backward, without computing anything. Those that LitGPT's
// model has too are in litgpt_operators.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace snug::plan::eager {

// x (…, D), weight and bias (D), any of which may train.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// pixels (S, 3, H, W), weight (D, 3, P, P) -> (S, D, H / P, W / P)
at::Tensor patches(const at::Tensor& pixels, const at::Tensor& weight, const at::Tensor& bias);

// q (B, H, T, D), k, v (B, H, U, D) of torch's scaled_dot_product_attention on a GPU that has its
// fused kernels: flash attention for 16-bit types, memory-efficient attention in float32 and where
// there is a `mask`, bool or to be added, that broadcasts to (B, H, T, U).
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& mask);

// table (buckets, H) -> (1, H, T, U): T5's biases.
at::Tensor relative_bias(const at::Tensor& table, int64_t queries, int64_t keys);
// bias where `mask` (B, 1, T, U) allows: (B, H, T, U).
at::Tensor masked_bias(const at::Tensor& mask, const at::Tensor& bias);

// Keeps its result.
at::Tensor relu(const at::Tensor& x);

// Rows of x (B, T, D) that a mask names, replaced by those of `rows`.
at::Tensor masked_scatter(const at::Tensor& x, const at::Tensor& rows);
// Masked places of x, which is not kept, replaced by a number.
at::Tensor masked_fill(const at::Tensor& x, const at::Tensor& mask);

// x (…, I) times a weight (O, I) of 4-bit codes; the weight is dequantized to `stored`, in which it
// was quantized, and then cast to the type of x.
at::Tensor product_4bit(const at::Tensor& x, const at::Tensor& codes, int64_t outputs,
                        at::ScalarType stored);

// A gradient of `weight` that autograd has made is copied into its place in a bucket, and freed.
void gradients_go_into_buckets(const at::Tensor& weight);

}  // namespace snug::plan::eager
