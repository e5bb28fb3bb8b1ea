// The formulas of attention_scores.h for one score, shared by the CPU and the GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "core/kernels/attention_scores.h"

#ifdef __CUDACC__
#define SNUG_SCORE_FORMULA static __device__ __forceinline__
#else
#define SNUG_SCORE_FORMULA static inline
#endif

namespace snug::kernels {
namespace {

// What a score is a function of, besides its product.
struct ScorePlace {
  int64_t head;
  int64_t distance;  // of the key, after the row
};

SNUG_SCORE_FORMULA bool sees(const AttentionScores& a, int64_t distance) {
  if (a.causal && distance > 0) return false;
  return a.sliding_window == 0 || (distance < a.sliding_window && distance > -a.sliding_window);
}

// A document's rows and keys in the block; `row`: the number of its first row.
struct ScoreDocument {
  int64_t row, rows, keys;
};

SNUG_SCORE_FORMULA ScoreDocument document_at(const AttentionScores& a, int64_t document) {
  ScoreDocument own{document * a.rows, a.rows, a.keys};
  if (a.query_borders != nullptr) {
    own.row = a.query_borders[document] - a.query_borders[0];
    own.rows = a.query_borders[document + 1] - a.query_borders[document];
  }
  if (a.key_borders != nullptr) own.keys = a.key_borders[document + 1] - a.key_borders[document];
  return own;
}

SNUG_SCORE_FORMULA int32_t bias_bucket(const AttentionScores& a, int64_t distance) {
  const int64_t most = a.max_distance;
  const int64_t cut = distance < -most ? -most : distance > most ? most : distance;
  return a.bias_buckets[cut + most];
}

// `slope`: the derivative by the scaled product.
SNUG_SCORE_FORMULA float score_of(const AttentionScores& a, float product, ScorePlace place,
                                  float* slope) {
  float score = product * a.scale;
  *slope = 1.f;
  if (a.cap > 0) {
    const float share = tanhf(score / a.cap);
    *slope = 1.f - share * share;
    score = a.cap * share;
  }
  if (a.bias != nullptr) score += a.bias[bias_bucket(a, place.distance) * a.heads + place.head];
  return score;
}

// What the dropout of a score is drawn from: the row's number in the micro-batch, and the key's
// place in its document.
SNUG_SCORE_FORMULA uint32_t dropout_bits(const AttentionScores& a, int64_t head, int64_t row,
                                         int64_t key) {
  const int64_t number =
      (a.dropout.first_head + head) * a.dropout.num_rows + a.dropout.first_row + row;
  const uint64_t mask = mask_key_of(a.dropout.key, a.dropout.pass_key, a.dropout.key_mixes);
  uint32_t x = static_cast<uint32_t>(number) * 0x9e3779b9u + static_cast<uint32_t>(mask);
  x ^= static_cast<uint32_t>(a.first_column + key);
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= (x >> 15) ^ static_cast<uint32_t>(mask >> 32);
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

}  // namespace
}  // namespace snug::kernels
