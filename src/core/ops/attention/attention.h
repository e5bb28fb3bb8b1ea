// Attention over packed documents, flash-style (Dao et al. 2022): no T×T array exists. Optionally
// causal, with rotary embeddings, as cross-attention, or with T5's relative biases.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/kernels/random_key.h"
#include "core/ops/attention/borders.h"
#include "core/ops/rope.h"

namespace snug::ops {

struct AttentionContext {
  Borders cu_seqlens;          // (S+1) int32: document s holds tokens cu[s] .. cu[s+1]
  int64_t max_seqlen = 0;      // tokens of the longest document
  at::Tensor positions;        // (N) int32, counted from each document's start
  RopeTables rope;             // rotates q and k; undefined: none
  double scale = 1.0;          // on q·k
  int64_t sliding_window = 0;  // 0: none
  bool causal = true;
  // For cross-attention: the keys' boundaries (M tokens, as many documents). With a causal mask a
  // document has at least as many keys as queries, and its queries are its last tokens.
  Borders kv_cu_seqlens;  // (S+1) int32; undefined: self-attention
  int64_t max_kv_seqlen = 0;
  // Biases added to the scores by the distance of key and query (T5, Raffel et al. 2020, section
  // 2.1): row b of the table (buckets, H) is for distances in bucket b. Undefined: none. It gets a
  // gradient.
  at::Tensor bias_table;
  // (H) float32: a score that each row of a head has beside those of its keys, of a key whose value
  // is zero (gpt-oss; Xiao et al. 2023). Undefined: none. It gets a gradient.
  at::Tensor sinks;
  double score_cap = 0;        // c: a score s becomes c * tanh(s / c); 0: none. Not with biases
  int64_t max_distance = 128;  // larger distances share the last bucket
  at::Tensor bias_buckets;     // bias_buckets() of score_block.h, made once; cuda only
  // Dropout of the probabilities, while training.
  double dropout = 0;
  kernels::MaskKey dropout_key;
  int64_t dropout_first_head = 0;  // this rank's first head, under tensor parallelism
  // If this call has only part of the micro-batch's tokens: the first query's row in the
  // micro-batch, and its number of rows; 0: the call has all.
  int64_t dropout_first_row = 0;
  int64_t dropout_num_rows = 0;
};

// q (N, H, D), k and v (N, Hkv, D) -> (N, H*D); for cross-attention k and v (M, Hkv, D). Rotates q
// and k in place, to avoid a copy: the caller must not need them unrotated. Saves q, k, v, the
// output and one float per head and row.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionContext& context);

// Attention of one new token for each of S sequences to its cache: q (S, H, D) already rotated,
// caches (S, max, Hkv, D) of which the first `length` rows of each count -> (S, H*D). No gradient.
at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& k_cache,
                            const at::Tensor& v_cache, int64_t length,
                            const AttentionContext& context);

}  // namespace snug::ops
