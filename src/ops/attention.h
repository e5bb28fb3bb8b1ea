// Rotary causal attention over packed documents, flash-style (Dao et al. 2022): no T×T array
// exists.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/rope.h"

namespace snug::ops {

struct AttentionContext {
  at::Tensor cu_seqlens;       // (S+1) int32: document s holds tokens cu[s] .. cu[s+1]
  int64_t max_seqlen = 0;      // tokens of the longest document
  at::Tensor positions;        // (N) int32, counted from each document's start
  RopeTables rope;             // rotates q and k; undefined: none
  double scale = 1.0;          // on q·k
  int64_t sliding_window = 0;  // 0: none
};

// q (N, H, D), k and v (N, Hkv, D) -> (N, H*D). Rotates q and k in place, so that no second copy is
// kept: pass tensors that nothing else needs unrotated. Saves q, k, v, the output and one float per
// head and row.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionContext& context);

// One new token of one sequence against its cache: q (1, H, D) already rotated, caches
// (max, Hkv, D) of which the first `length` rows count -> (1, H*D). No gradient.
at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& k_cache,
                            const at::Tensor& v_cache, int64_t length,
                            const AttentionContext& context);

}  // namespace snug::ops
