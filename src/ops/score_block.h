// One block of attention scores where attention is plain matrix products: which rows and keys it
// has, and what its scores get besides the product: the mask, relative biases, and which of its
// probabilities are dropped. Everything is made of tensor operators, on the tensors' device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention.h"

namespace snug::ops {

// Rows of one document: some of its queries against the keys they may see.
struct ScoreBlock {
  int64_t begin = 0, end = 0;           // rows of the queries
  int64_t first_key = 0, last_key = 0;  // rows of the keys
  int64_t query_document = 0;           // where the document starts among the queries
  int64_t key_document = 0;             // and among the keys
  int64_t shift = 0;                    // the document's first query is the token of this key of it
  int64_t num_kv_heads = 0;             // Hkv
  int64_t heads_per_kv = 0;             // G
  int64_t rows() const { return end - begin; }
  int64_t keys() const { return last_key - first_key; }
  int64_t heads() const { return num_kv_heads * heads_per_kv; }
};

// The blocks of all documents, of at most `most_rows` rows each. On meta one document, the longest,
// stands for all: it is what needs most.
std::vector<ScoreBlock> score_blocks(const at::Tensor& q, const at::Tensor& k,
                                     const AttentionContext& context, int64_t most_rows);

// Adds to scores (H, rows, keys) the smallest of numbers where a row may not see a key.
void add_mask(const at::Tensor& scores, const ScoreBlock& block, const AttentionContext& context);

// The distances that each bucket of a table of biases stands for, from the first to the last:
// (2, buckets) float32. The host works them out, since a logarithm of the device's own might put a
// distance at the border into another bucket; so they are made before training.
at::Tensor bias_intervals(int64_t num_buckets, int64_t max_distance, bool causal,
                          at::Device device);

// The biases of a context's table. Its buckets are intervals of distances.
class BlockBias {
 public:
  explicit BlockBias(const AttentionContext& context);

  bool present() const { return table_.defined(); }
  // Adds the biases to scores (H, rows, keys).
  void add_to(const at::Tensor& scores, const ScoreBlock& block) const;
  // Adds what d_scores (H, rows, keys) means for the table to sums (H, buckets).
  void add_gradient(const at::Tensor& sums, const at::Tensor& d_scores,
                    const ScoreBlock& block) const;

 private:
  // (rows * keys, buckets): 1 where a row's distance to a key is in the bucket.
  at::Tensor memberships(const ScoreBlock& block) const;

  at::Tensor table_;      // (buckets, H) float32
  at::Tensor intervals_;  // (2, buckets) float32
};

// 0 where a probability is dropped and 1 / (1 - dropout) elsewhere, as the CPU kernel drops them:
// (H, rows, keys), of a batch with num_tokens queries.
at::Tensor kept_factors(const at::Tensor& like, const ScoreBlock& block, int64_t num_tokens,
                        const AttentionContext& context);

}  // namespace snug::ops
