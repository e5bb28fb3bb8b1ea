// Attention as units call it, with or without a key-value cache.
//
// Shapes: N query tokens, M key tokens; H heads, K key-value heads, d head size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "core/ops/attention/attention.h"

namespace snug::nn {

// A layer's output (N, H·d) as heads of d features: (N, H, d).
inline at::Tensor split_heads(const at::Tensor& x, int64_t head_dim) {
  return x.view({-1, x.size(1) / head_dim, head_dim});
}

struct AttentionOptions {
  double scale = 1;
  const ops::RopeTables* rope = nullptr;  // rotates q and k
  int64_t sliding_window = 0;
  double score_cap = 0;                 // ops::AttentionContext
  at::Tensor sinks = {};                // ops::AttentionContext
  at::Tensor bias_table, bias_buckets;  // ops::AttentionContext
  int64_t max_distance = 128;
  double dropout = 0;               // on the attention probabilities
  std::string site;                 // the layer's name, which seeds dropout
  const Linear* queries = nullptr;  // the layer that makes q, which numbers its heads for dropout
};

// Causal attention within each document. In a generation it appends k and v to the cache of `layer`
// and attends to all of it; with context parallelism it attends to other ranks' tokens too. q (N,
// H, d), k and v (N, K, d) -> (N, H·d).
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            int64_t layer, const AttentionOptions& options, const Batch& batch,
                            const Pass& pass);

// Tokens of S sequences packed one after another.
struct Packed {
  ops::Borders cu_seqlens;  // (S+1) int32
  int64_t max_seqlen = 0;
  at::Tensor positions;  // (N) int32; may be undefined without rotary embeddings
};
// S sequences of `length` tokens each.
Packed even_sequences(int64_t count, int64_t length, at::Device device);

// Bidirectional attention within each sequence: q (N, H, d), k and v (N, K, d) -> (N, H·d).
at::Tensor full_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const Packed& sequences, const AttentionOptions& options,
                          const Pass& pass);
// Cross-attention of each sequence to its source: q (N, H, d), k and v (M, K, d) -> (N, H·d).
at::Tensor cross_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const Packed& queries, const Packed& keys,
                           const AttentionOptions& options, const Pass& pass);

}  // namespace snug::nn
