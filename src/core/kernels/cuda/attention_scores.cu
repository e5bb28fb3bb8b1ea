// One block a row of scores. The softmax keeps a running maximum and the sum relative to it in each
// thread; its second sweep finds the row in a cache.
// Bytes a score, without what the caches serve:
//   softmax: reads 4, writes 4
//   probabilities: reads 4, writes 4
//   scores_backward: reads 8, writes 4
//   bias_backward: reads 4
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/attention_formulas.h"
#include "core/kernels/cuda/elements.cuh"
#include "core/kernels/cuda/operators.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kScoresAThread = 4;
constexpr int kBiasThreads = 256;

struct Kept {
  uint32_t threshold;
  float scale;
};

// The row of a block of threads.
struct Row {
  int64_t head;
  int64_t of_all;    // counted over documents
  int64_t distance;  // of key 0
  int64_t begin;     // among the scores
  int64_t keys;      // that it may see; 0: there is no such row
};

__device__ Row row_at(const AttentionScores& a, int64_t index) {
  const int64_t row = index % a.rows, head = index / a.rows % a.heads;
  const ScoreDocument document = document_at(a, index / (a.rows * a.heads));
  return {head, document.row + row, a.first_distance - row, index * a.keys,
          row < document.rows ? document.keys : 0};
}

__device__ bool sees(const AttentionScores& a, const Row& row, int64_t key) {
  return key < row.keys && kernels::sees(a, row.distance + key);
}

__device__ float& lse_of(const AttentionScores& a, const Row& row) {
  return a.lse[row.head * a.lse_stride + row.of_all];
}

__device__ float kept_of(const AttentionScores& a, const Kept& kept, const Row& row, int64_t key) {
  if (a.dropout.probability == 0) return 1.f;
  return dropout_bits(a, row.head, row.of_all, key) >= kept.threshold ? kept.scale : 0.f;
}

__device__ float score_at(const AttentionScores& a, const Row& row, int64_t key, float* slope) {
  return score_of(a, a.scores[row.begin + key], {row.head, row.distance + key}, slope);
}

__global__ void __launch_bounds__(kMostThreads) softmax(AttentionScores a, Kept kept) {
  const Row row = row_at(a, blockIdx.x);
  float slope, maximum = -INFINITY, sum = 0.f;
  for (int64_t key = threadIdx.x; key < a.keys; key += blockDim.x) {
    if (!sees(a, row, key)) continue;
    const float score = score_at(a, row, key, &slope);
    if (!(score <= maximum)) {
      sum = moved(sum, maximum, score);
      maximum = score;
    }
    sum += expf(score - maximum);
  }
  const float highest = reduce_block(maximum, -INFINITY, Max{});
  sum = reduce_block(moved(sum, maximum, highest), 0.f, Add{});
  for (int64_t key = threadIdx.x; key < a.keys; key += blockDim.x) {
    float& score = a.scores[row.begin + key];
    score = sees(a, row, key)
                ? expf(score_at(a, row, key, &slope) - highest) / sum * kept_of(a, kept, row, key)
                : 0.f;
  }
  if (threadIdx.x == 0 && row.keys > 0) lse_of(a, row) = logf(sum) + highest;
}

__global__ void __launch_bounds__(kMostThreads)
    probabilities(AttentionScores a, Kept kept, float* out) {
  const Row row = row_at(a, blockIdx.x);
  const float lse = row.keys > 0 ? lse_of(a, row) : 0.f;
  float slope;
  for (int64_t key = threadIdx.x; key < a.keys; key += blockDim.x)
    out[row.begin + key] =
        sees(a, row, key) ? expf(score_at(a, row, key, &slope) - lse) * kept_of(a, kept, row, key)
                          : 0.f;
}

__global__ void __launch_bounds__(kMostThreads)
    scores_backward(AttentionScores a, Kept kept, const float* arriving, const float* delta) {
  const Row row = row_at(a, blockIdx.x);
  const float lse = row.keys > 0 ? lse_of(a, row) : 0.f, own = delta[blockIdx.x];
  for (int64_t key = threadIdx.x; key < a.keys; key += blockDim.x) {
    float slope, gradient = 0.f;
    if (sees(a, row, key)) {
      const float probability = expf(score_at(a, row, key, &slope) - lse);
      const float of_probability = arriving[row.begin + key] * kept_of(a, kept, row, key);
      gradient = probability * (of_probability - own) * slope * a.scale;
    }
    a.scores[row.begin + key] = gradient;
  }
}

// A block adds up one bucket of one head, diagonal by diagonal.
__global__ void __launch_bounds__(kBiasThreads) bias_backward(AttentionScores a, float* sums) {
  const int64_t bucket = blockIdx.x, head = blockIdx.y;
  float sum = 0.f;
  for (int64_t distance = a.first_distance - a.rows + 1; distance < a.first_distance + a.keys;
       ++distance) {
    if (bias_bucket(a, distance) != bucket) continue;
    // Row r has this distance to key r + first_key.
    const int64_t first_key = distance - a.first_distance;
    const int64_t begin = first_key < 0 ? -first_key : 0;
    const int64_t end = a.keys - first_key < a.rows ? a.keys - first_key : a.rows;
    for (int64_t i = threadIdx.x; i < a.documents * (end - begin); i += blockDim.x) {
      const int64_t document = i / (end - begin), row = begin + i % (end - begin);
      sum += a.scores[((document * a.heads + head) * a.rows + row) * a.keys + row + first_key];
    }
  }
  sum = reduce_block(sum, 0.f, Add{});
  if (threadIdx.x == 0) sums[head * a.num_buckets + bucket] += sum / a.scale;
}

Kept kept_of(const AttentionScores& args) {
  return {args.dropout.threshold(), args.dropout.scale()};
}

// A block of threads for each row.
template <class... Parameters, class... Arguments>
void launch_rows(const char* name, void (*kernel)(Parameters...), const AttentionScores& args,
                 cudaStream_t stream, const Arguments&... arguments) {
  const int64_t rows = args.documents * args.heads * args.rows;
  if (rows == 0 || args.keys == 0) return;
  launch(name, kernel, Grid{rows}, threads_for(args.keys, kScoresAThread), 0, stream, args,
         kept_of(args), arguments...);
}

}  // namespace

void attention_softmax(const AttentionScores& args, cudaStream_t stream) {
  launch_rows("attention_softmax", softmax, args, stream);
}

void attention_probabilities(const AttentionScores& args, float* out, cudaStream_t stream) {
  launch_rows("attention_probabilities", probabilities, args, stream, out);
}

void attention_scores_backward(const AttentionScores& args, const float* arriving,
                               const float* delta, cudaStream_t stream) {
  launch_rows("attention_scores_backward", scores_backward, args, stream, arriving, delta);
}

void attention_bias_backward(const AttentionScores& args, float* sums, cudaStream_t stream) {
  if (args.documents * args.rows == 0 || args.keys == 0) return;
  launch("attention_bias_backward", bias_backward, Grid{args.num_buckets, args.heads}, kBiasThreads,
         0, stream, args, sums);
}

}  // namespace snug::kernels::cuda
