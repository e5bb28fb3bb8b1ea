// Plain loops: on the CPU attention has a kernel of its own (linalg/attention), and these serve
// what is held to it.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/attention_scores.h"

#include <algorithm>
#include <limits>

#include "core/kernels/attention_formulas.h"
#include "core/kernels/cpu/parallel.h"

namespace snug::kernels::cpu {
namespace {

// One row, whatever is done with it.
struct Row {
  const AttentionScores& args;
  int64_t index;  // of all rows of all heads and documents

  int64_t row() const { return index % args.rows; }
  int64_t head() const { return index / args.rows % args.heads; }
  ScoreDocument document() const { return document_at(args, index / (args.rows * args.heads)); }
  bool exists() const { return row() < document().rows; }
  int64_t of_all() const { return document().row + row(); }
  int64_t distance(int64_t key) const { return args.first_distance + key - row(); }
  bool sees(int64_t key) const {
    return exists() && key < document().keys && kernels::sees(args, distance(key));
  }
  float& score(int64_t key) const { return args.scores[index * args.keys + key]; }
  float& lse() const { return args.lse[head() * args.lse_stride + of_all()]; }
  float kept(int64_t key) const {
    if (args.dropout.probability == 0) return 1.f;
    const bool is_kept = dropout_bits(args, head(), of_all(), key) >= args.dropout.threshold();
    return is_kept ? args.dropout.scale() : 0.f;
  }
  float value(int64_t key, float* slope) const {
    return score_of(args, score(key), {.head = head(), .distance = distance(key)}, slope);
  }
  template <class Body>
  void each_seen(const Body& body) const {
    for (int64_t key = 0; key < args.keys; ++key) {
      if (!sees(key)) continue;
      float slope = 1;
      const float score = value(key, &slope);
      body(key, score, slope);
    }
  }
};

template <class Body>
void each_row(const AttentionScores& args, const Body& body) {
  parallel_ranges(args.documents * args.heads * args.rows, args.keys, args.num_threads,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) body(Row{args, i});
                  });
}

}  // namespace

void attention_softmax(const AttentionScores& args) {
  each_row(args, [&](const Row& row) {
    float highest = -std::numeric_limits<float>::infinity(), sum = 0;
    row.each_seen([&](int64_t, float score, float) {
      if (!(score <= highest)) highest = score;
    });
    row.each_seen([&](int64_t, float score, float) { sum += std::exp(score - highest); });
    for (int64_t key = 0; key < args.keys; ++key) {
      float slope = 1;
      row.score(key) =
          row.sees(key) ? std::exp(row.value(key, &slope) - highest) / sum * row.kept(key) : 0.f;
    }
    if (row.exists()) row.lse() = std::log(sum) + highest;
  });
}

void attention_probabilities(const AttentionScores& args, float* out) {
  each_row(args, [&](const Row& row) {
    float* to = out + row.index * args.keys;
    std::fill(to, to + args.keys, 0.f);
    row.each_seen([&](int64_t key, float score, float) {
      to[key] = std::exp(score - row.lse()) * row.kept(key);
    });
  });
}

void attention_scores_backward(const AttentionScores& args, const float* arriving,
                               const float* delta) {
  each_row(args, [&](const Row& row) {
    for (int64_t key = 0; key < args.keys; ++key)
      if (!row.sees(key)) row.score(key) = 0;
    row.each_seen([&](int64_t key, float score, float slope) {
      const float of_probability = arriving[row.index * args.keys + key] * row.kept(key);
      row.score(key) =
          std::exp(score - row.lse()) * (of_probability - delta[row.index]) * slope * args.scale;
    });
  });
}

void attention_bias_backward(const AttentionScores& args, float* sums) {
  parallel_ranges(
      args.heads, args.documents * args.rows * args.keys, args.num_threads,
      [&](int64_t begin, int64_t end) {
        for (int64_t head = begin; head < end; ++head)
          for (int64_t i = 0; i < args.documents * args.rows; ++i) {
            const Row row{args, (i / args.rows * args.heads + head) * args.rows + i % args.rows};
            for (int64_t key = 0; key < args.keys; ++key)
              sums[head * args.num_buckets + bias_bucket(args, row.distance(key))] +=
                  row.score(key) / args.scale;
          }
      });
}

}  // namespace snug::kernels::cpu
