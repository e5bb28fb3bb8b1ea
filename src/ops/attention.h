// Attention over packed documents, flash-style (Dao et al. 2022): no T×T array exists. Causal or
// not, rotary or not, of a sequence to itself or to another one, with T5's relative biases or
// without.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/borders.h"
#include "ops/rope.h"

namespace snug::ops {

struct AttentionContext {
  Borders cu_seqlens;          // (S+1) int32: document s holds tokens cu[s] .. cu[s+1]
  int64_t max_seqlen = 0;      // tokens of the longest document
  at::Tensor positions;        // (N) int32, counted from each document's start
  RopeTables rope;             // rotates q and k; undefined: none
  double scale = 1.0;          // on q·k
  int64_t sliding_window = 0;  // 0: none
  bool causal = true;
  // Where keys are another sequence's (M tokens, as many documents): theirs. With a causal mask a
  // document has as many as queries or more, and its queries are the last of its tokens.
  Borders kv_cu_seqlens;  // (S+1) int32; undefined: keys are the queries' own sequence
  int64_t max_kv_seqlen = 0;
  // Added to the scores by how far key and query are apart (T5, Raffel et al. 2020, section 2.1):
  // row b of the table (buckets, H) for distances of bucket b. Undefined: none. It gets a gradient.
  at::Tensor bias_table;
  int64_t max_distance = 128;  // farther ones share the last bucket; both directions if not causal
  at::Tensor bias_intervals;   // of the table (score_block.h), made once for all calls; cuda only
  // Of the probabilities, while training.
  double dropout = 0;
  uint64_t dropout_key = 0;
  int64_t dropout_first_head = 0;  // where other ranks have the heads before
  // Where other calls have other tokens of the micro-batch: the first query's row there, and how
  // many rows there are; 0: all are here.
  int64_t dropout_first_row = 0;
  int64_t dropout_num_rows = 0;
};

// q (N, H, D), k and v (N, Hkv, D) -> (N, H*D); with keys of another sequence k and v (M, Hkv, D).
// Rotates q and k in place, so that no second copy is kept: pass tensors that nothing else needs
// unrotated. Saves q, k, v, the output and one float per head and row.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionContext& context);

// One new token for each of S sequences against its cache: q (S, H, D) already rotated, caches
// (S, max, Hkv, D) of which the first `length` rows of each count -> (S, H*D). No gradient.
at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& k_cache,
                            const at::Tensor& v_cache, int64_t length,
                            const AttentionContext& context);

}  // namespace snug::ops
