// Operators of eager PyTorch training on a GPU that libtorch has no meta kernel for, or that are
// another library's: what they allocate and what they keep for their backward, without computing
// anything.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace snug::plan::rivals {

// ids (B, T), weight (V, D) -> (B, T, D). Its gradient is as large as the table.
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight);

// x (…, D), weight and bias (D), any of which may train.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Keeps a mask of one byte an element, as on a GPU.
at::Tensor dropout(const at::Tensor& x);

// Keeps its result.
at::Tensor relu(const at::Tensor& x);

// q (B, H, T, D), k, v (B, H, U, D) of torch's scaled_dot_product_attention on a GPU that has its
// fused kernels: flash attention for 16-bit types, memory-efficient attention in float32 and where
// there is a `mask`, bool or to be added, that broadcasts to (B, H, T, U).
at::Tensor fused_attention(at::Tensor q, at::Tensor k, at::Tensor v, const at::Tensor& mask = {});
// … and on a CPU, whose kernel takes masks and fewer heads of keys too.
at::Tensor cpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& mask = {});
// … and on other GPUs: products in float32, all T x U scores of every head.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// table (buckets, H) -> (1, H, T, U): T5's biases.
at::Tensor relative_bias(const at::Tensor& table, int64_t queries, int64_t keys);
// bias where `mask` (B, 1, T, U) allows: (B, H, T, U).
at::Tensor masked_bias(const at::Tensor& mask, const at::Tensor& bias);

// x (B, C, T), weight (O, C / groups, 1) -> (B, O, T)
at::Tensor conv1d(const at::Tensor& x, const at::Tensor& weight);
// pixels (S, 3, H, W), weight (D, 3, P, P) -> (S, D, H / P, W / P)
at::Tensor patches(const at::Tensor& pixels, const at::Tensor& weight, const at::Tensor& bias);

// x (B, T, C) -> (B, T, width), zeros in the columns that x does not have. Keeps x, as
// Tensor.index_copy_ does.
at::Tensor spread_columns(const at::Tensor& x, int64_t width);
// Rows of x (B, T, D) that a mask names, replaced by those of `rows`.
at::Tensor masked_scatter(const at::Tensor& x, const at::Tensor& rows);
// Masked places of x, which is not kept, replaced by a number.
at::Tensor masked_fill(const at::Tensor& x, const at::Tensor& mask);

// x (…, I) times a weight (O, I) of 4-bit codes, of which nothing else is kept. The weight is
// dequantized to `stored` and then cast to the type of x. `quantized_scales`: the scales are
// dequantized before it, to float32.
at::Tensor product_4bit(const at::Tensor& x, const at::Tensor& codes, int64_t outputs,
                        at::ScalarType stored, bool quantized_scales = false);

// The weight itself, as it is dequantized before that, in the type `stored`.
at::Tensor dequantized_4bit(const at::Tensor& codes, int64_t outputs, int64_t inputs,
                            at::ScalarType stored, bool quantized_scales);
// … and a weight (O, I) of bitsandbytes' LLM.int8, in float32.
at::Tensor dequantized_8bit(const at::Tensor& codes);

// x (…, I) times a weight (O, I) of LLM.int8. On a GPU x is rounded to 8 bits too, by way of
// float16, and summed in int32; few outliers are as good as none. A CPU dequantizes the weight to
// the type of x instead, and multiplies in the type `product`. Both keep x, even where it will be
// recomputed, until the whole backward is over, and dequantize the weight for the gradient.
at::Tensor product_8bit(const at::Tensor& x, const at::Tensor& codes, at::ScalarType product,
                        bool on_cpu);

// The highest `count` values in each row of x (N, E), and their columns (int64).
std::pair<at::Tensor, at::Tensor> top_columns(const at::Tensor& x, int64_t count);
// Rows of x (N, …) by their indices (S): (S, …).
at::Tensor taken_rows(const at::Tensor& x, const at::Tensor& indices);
// x (S, I), rows sorted by expert, times each one's weight (experts, O, I): (S, O).
at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& weight);

// The mean loss of logits (…, V), whose rows with the target `ignored` do not count.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, int64_t ignored);

}  // namespace snug::plan::rivals
