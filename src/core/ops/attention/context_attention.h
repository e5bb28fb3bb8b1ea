// Causal attention with context parallelism (as in Llama 3, Grattafiori et al. 2024): ranks share a
// micro-batch's tokens. The packed tokens are split into 2 C chunks of L tokens for C ranks, and
// rank r has chunks r and 2 C - 1 - r, so that all ranks have the same work in total.
//
// A rank has its own queries and gathers keys and values; a chunk attends to keys from the start of
// its first document to its own end. Only the rank's own keys and values are saved, and the
// backward gathers again: gathered, those of all layers would be as large as on one rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "core/kernels/dropout.h"
#include "core/ops/attention/attention.h"

namespace snug::dist {
class Group;
}

namespace snug::ops {

struct ContextChunk {
  int64_t first_row = 0;       // its first token's index in the micro-batch
  int64_t first_key = 0;       // index of the first token of that token's document
  int64_t first_document = 0;  // its number in the micro-batch: the first of the borders below
  // Boundaries of the chunk's documents: of their queries in the chunk, from 0 to L, and of the
  // keys that the chunk attends to, from 0 to first_row + L - first_key. (S+1) int32.
  Borders cu_seqlens, kv_cu_seqlens;
  int64_t max_seqlen = 0, max_kv_seqlen = 0;
};

// A rank's share of a micro-batch of N tokens, padded to 2 C L.
struct ContextShare {
  dist::Group* group = nullptr;     // rank r has chunk r of the first half
  dist::Group* reversed = nullptr;  // the same ranks; rank r here has chunk r of the second half
  int64_t num_tokens = 0;           // N
  std::array<ContextChunk, 2> chunks;

  // This rank's rows in the whole micro-batch, for `length` = L.
  kernels::RowPlaces places(int64_t length) const {
    return {.stretch = length, .first = chunks[0].first_row, .second = chunks[1].first_row};
  }
};

// ops::attention of this rank's q (2 L, H, D), k and v (2 L, Hkv, D) -> (2 L, H*D). `context` has
// everything but the documents; its positions are this rank's.
at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionContext& context, const ContextShare& share);

}  // namespace snug::ops
