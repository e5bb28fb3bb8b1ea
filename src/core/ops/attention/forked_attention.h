// Causal attention of documents that share their beginning. The tokens of a sample's documents,
// such as a prompt with two answers, stand once: those of the first document whole, of each other
// one only what follows the shared beginning. A row attends to the shared rows and to its own
// document's.
//
// Keys and values are copied so that each document's stand together, for the time of one product in
// the forward and again in the backward: what is saved is of the shared rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/ops/attention/attention.h"

namespace snug::ops {

// Rows of the micro-batch whose keys stand together, as those of the next `count` keys.
struct KeyRun {
  int64_t first_row = 0, count = 0;
  bool is_again = false;  // an earlier run has had these rows
};

struct Forks {
  std::vector<KeyRun> runs;  // on the host
  Borders kv_cu_seqlens;     // (S+1) int32: keys of each document, shared ones included
  int64_t max_kv_seqlen = 0;
  // Memory for so many keys is taken, of which the runs may have fewer: as many as any micro-batch
  // of as many samples has, so that a plan knows it.
  int64_t num_keys = 0;
};

// ops::attention of q (N, H, D), k and v (N, Hkv, D) -> (N, H*D), whose documents in
// context.cu_seqlens are the last tokens of the documents that `forks` has. Rotates q and k in
// place.
at::Tensor forked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionContext& context, const Forks& forks);

}  // namespace snug::ops
