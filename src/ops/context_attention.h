// Causal attention of a micro-batch whose tokens the ranks of a group share (context parallelism,
// as in Llama 3, Grattafiori et al. 2024). The tokens of all packed documents are cut into 2 C
// chunks of L for C ranks, and rank r has chunks r and 2 C - 1 - r: the more a chunk's tokens look
// back on, the less do those of its companion, so that all ranks have the same work.
//
// A rank's queries are its own; keys and values are gathered, and each chunk looks at those from
// the beginning of the document that it begins in to its own end. Only what is the rank's own is
// kept for the backward, which gathers again: gathered, keys and values of all layers together
// would be as large as with one rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "dist/group.h"
#include "kernels/cpu/dropout.h"
#include "ops/attention.h"

namespace snug::ops {

struct ContextChunk {
  int64_t first_row = 0;  // its first token, among all of the micro-batch's
  int64_t first_key = 0;  // the first token of the document which that one belongs to
  // Of the documents that are in the chunk, with the tokens that each has there, from 0 to L, and
  // those up to them that the chunk looks at, from 0 to first_row + L - first_key. (S+1) int32.
  Borders cu_seqlens, kv_cu_seqlens;
  int64_t max_seqlen = 0, max_kv_seqlen = 0;
};

// A rank's share of a micro-batch of N tokens, 2 C L with those that fill up the last chunk.
struct ContextShare {
  dist::Group* group = nullptr;     // rank r has chunk r of the first half
  dist::Group* reversed = nullptr;  // the same ranks; rank r here has chunk r of the second half
  int64_t num_tokens = 0;           // N
  std::array<ContextChunk, 2> chunks;

  // Which rows of the whole micro-batch this rank's are, for `length` = L.
  kernels::cpu::RowPlaces places(int64_t length) const {
    return {.stretch = length, .first = chunks[0].first_row, .second = chunks[1].first_row};
  }
};

// ops::attention of this rank's q (2 L, H, D), k and v (2 L, Hkv, D) -> (2 L, H*D). `context` says
// all but the documents; its positions are this rank's.
at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionContext& context, const ContextShare& share);

}  // namespace snug::ops
