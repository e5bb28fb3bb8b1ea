// Blocks of attention scores for attention by matrix products: their rows and keys, the mask,
// relative biases and dropout. Made of tensor operators, on the tensors' device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/ops/attention/attention.h"

namespace snug::ops {

// Some queries of one document and the keys that they may attend to.
struct ScoreBlock {
  int64_t begin = 0, end = 0;           // rows of the queries
  int64_t first_key = 0, last_key = 0;  // rows of the keys
  int64_t query_document = 0;           // the document's first row among the queries
  int64_t key_document = 0;             // and among the keys
  int64_t shift = 0;                    // the document's first query has the position of this key
  int64_t num_kv_heads = 0;             // Hkv
  int64_t heads_per_kv = 0;             // G
  int64_t rows() const { return end - begin; }
  int64_t keys() const { return last_key - first_key; }
  int64_t heads() const { return num_kv_heads * heads_per_kv; }
};

// The blocks of all documents, of at most `most_rows` rows each. On meta only for the longest
// document, which needs the most memory; where work is counted for all, as long as each other.
std::vector<ScoreBlock> score_blocks(const at::Tensor& q, const at::Tensor& k,
                                     const AttentionContext& context, int64_t most_rows);

// Adds the lowest finite number to scores (H, rows, keys) where a row may not attend to a key.
void add_mask(const at::Tensor& scores, const ScoreBlock& block, const AttentionContext& context);

// First and last distance of each bucket of relative biases: (2, buckets) float32. Computed on the
// host, before training, since the device's logarithm might round a boundary distance into another
// bucket.
at::Tensor bias_intervals(int64_t num_buckets, int64_t max_distance, bool causal,
                          at::Device device);

// The relative biases of an AttentionContext.
class BlockBias {
 public:
  explicit BlockBias(const AttentionContext& context);

  bool present() const { return table_.defined(); }
  // Adds the biases to scores (H, rows, keys).
  void add_to(const at::Tensor& scores, const ScoreBlock& block) const;
  // Adds the table's gradient from d_scores (H, rows, keys) to sums (H, buckets).
  void add_gradient(const at::Tensor& sums, const at::Tensor& d_scores,
                    const ScoreBlock& block) const;

 private:
  // (rows * keys, buckets): 1 where a row's distance to a key is in the bucket.
  at::Tensor memberships(const ScoreBlock& block) const;

  at::Tensor table_;      // (buckets, H) float32
  at::Tensor intervals_;  // (2, buckets) float32
};

// The dropout mask of the CPU kernel for a batch with num_tokens queries, (H, rows, keys): 0, or 1
// / (1 - dropout) where kept.
at::Tensor kept_factors(const at::Tensor& like, const ScoreBlock& block, int64_t num_tokens,
                        const AttentionContext& context);

}  // namespace snug::ops
