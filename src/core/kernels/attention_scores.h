// Attention as matrix products (core/ops/attention/library_attention.h) has its scores in memory, a
// block at a time. These are the sweeps over a block between the products: scale, cap, relative
// biases, mask, softmax and dropout in one, and their way back.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/dropout.h"

namespace snug::kernels {

// Rows of queries against keys of the same document; or of several documents, one after another.
struct AttentionScores {
  float* scores = nullptr;  // (documents, heads, rows, keys): q·k at first
  int64_t documents = 1, heads = 0, rows = 0, keys = 0;
  // Where documents have fewer: document d has rows query_borders[d] .. query_borders[d + 1] of
  // all, and so many keys; what it lacks has probability and gradient zero. Null: each has all.
  const int32_t* query_borders = nullptr;
  const int32_t* key_borders = nullptr;
  // Log of the sum of exp(score): of row r of document d at lse[head * lse_stride + n], n the row's
  // number in the block.
  float* lse = nullptr;
  int64_t lse_stride = 0;
  float scale = 1.f;
  float cap = 0;  // c: a scaled score s becomes c * tanh(s / c); 0: none. Not with bias
  int64_t first_distance = 0;  // key c is first_distance + c - r places after row r
  bool causal = true;
  int64_t sliding_window = 0;  // 0: none
  // T5's biases: to the score of head h is added bias[bias_buckets[i] * heads + h], i the distance
  // cut to -max_distance .. max_distance, plus max_distance. Null: none.
  const float* bias = nullptr;            // (num_buckets, heads)
  const int32_t* bias_buckets = nullptr;  // (2 * max_distance + 1)
  int64_t num_buckets = 0, max_distance = 0;
  ProbabilityDropout dropout;  // first_row, num_rows: of the block's first row
  int64_t first_column = 0;    // the place of key 0 in its document
  int num_threads = 0;
};

namespace cpu {
// Scores become probabilities, with dropout; lse is written.
void attention_softmax(const AttentionScores& args);
// From lse and q·k the probabilities, with dropout, in `out`, of the scores' shape.
void attention_probabilities(const AttentionScores& args, float* out);
// q·k becomes its gradient. `arriving`, of the scores' shape: the gradient of the probabilities
// with dropout; delta (documents, heads, rows): the output times its gradient.
void attention_scores_backward(const AttentionScores& args, const float* arriving,
                               const float* delta);
// Adds the gradient of the biases to sums (heads, num_buckets); the scores are their gradients.
void attention_bias_backward(const AttentionScores& args, float* sums);
}  // namespace cpu

}  // namespace snug::kernels
