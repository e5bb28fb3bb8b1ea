// Blocks of attention scores for attention by matrix products: their rows and keys, and the sweeps
// over their scores between the products (core/kernels/attention_scores.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/kernels/attention_scores.h"
#include "core/ops/attention/attention.h"

namespace snug::ops {

// Some queries of one document and the keys that they may attend to; or all queries and keys of
// several documents that lie one after another, each with as many of both, or short ones, whose
// ends are filled up.
struct ScoreBlock {
  int64_t begin = 0, end = 0;           // rows of the queries, of the first document
  int64_t first_key = 0, last_key = 0;  // rows of the keys
  int64_t query_document = 0;           // the document's first row among the queries
  int64_t key_document = 0;             // and among the keys
  int64_t shift = 0;                    // the document's first query has the position of this key
  int64_t num_kv_heads = 0;             // Hkv
  int64_t heads_per_kv = 0;             // G
  int64_t documents = 1;
  // (documents + 1) int32 each, among all rows and keys; undefined: each document has all.
  at::Tensor query_borders, key_borders;
  int64_t rows() const { return end - begin; }
  int64_t keys() const { return last_key - first_key; }
  int64_t heads() const { return num_kv_heads * heads_per_kv; }
};

// The blocks of all documents, of at most 256 rows. On meta only for the longest
// document, which needs the most memory; where work is counted for all, as long as each other.
std::vector<ScoreBlock> score_blocks(const at::Tensor& q, const at::Tensor& k,
                                     const AttentionContext& context);

// The bucket of each distance from -max_distance to max_distance, of keys after their query: (2 *
// max_distance + 1) int32. Computed on the host, before training, since the device's logarithm
// might round a boundary distance into another bucket.
at::Tensor bias_buckets(int64_t num_buckets, int64_t max_distance, bool causal, at::Device device);

// The sweeps over the blocks of one call. `scores` are float32, of documents * heads * rows * keys
// elements in this order; lse is (H, N).
class ScoreSweeps {
 public:
  ScoreSweeps(const AttentionContext& context, int64_t num_tokens);

  // q·k becomes probabilities, with dropout; writes the block's part of lse.
  void softmax(const at::Tensor& scores, const at::Tensor& lse, const ScoreBlock& block) const;
  // Makes probabilities from q·k and lse, with dropout.
  at::Tensor probabilities(const at::Tensor& scores, const at::Tensor& lse,
                           const ScoreBlock& block) const;
  // q·k becomes its gradient. arriving: that of the probabilities, of the scores' size; delta: a
  // number a row, documents * heads * rows, float32.
  void backward(const at::Tensor& scores, const at::Tensor& lse, const at::Tensor& arriving,
                const at::Tensor& delta, const ScoreBlock& block) const;
  // Adds the gradient of the table of biases, from that of q·k, to sums (H, buckets) float32.
  void bias_backward(const at::Tensor& d_scores, const at::Tensor& sums,
                     const ScoreBlock& block) const;

 private:
  kernels::AttentionScores arguments(const at::Tensor& scores, const at::Tensor& lse,
                                     const ScoreBlock& block) const;

  const AttentionContext& context_;
  int64_t num_tokens_;
  at::Tensor table_;    // (buckets, H) float32; undefined: no biases
  at::Tensor buckets_;  // as bias_buckets() gives them
};

}  // namespace snug::ops
