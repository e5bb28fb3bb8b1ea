// Timing for the benchmarks of this folder: the best of many runs, beside the processor's bound
// measured in the same seconds, since other programs and the clock's governor move both.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

#include "core/kernels/cpu/linalg/cpu_features.h"

namespace snug::bench {

// With one thread the processor time of that thread, so that waiting for the core does not count.
inline double seconds_now() {
  timespec now{};
  clock_gettime(omp_get_max_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

struct Timing {
  double seconds = 1e300;  // best run
  double bound = 0;        // flops per second
};

template <class Run>
Timing best_time(double budget, const Run& run) {
  run();
  Timing timing;
  const double start = seconds_now();
  for (int i = 0; i < 3 || seconds_now() - start < budget; ++i) {
    if (i % 8 == 0) timing.bound = std::max(timing.bound, kernels::cpu::cpu_peak_flops_estimate());
    const double before = seconds_now();
    run();
    timing.seconds = std::min(timing.seconds, seconds_now() - before);
  }
  return timing;
}

struct GemmShape {
  const char* name;
  int64_t m, n, k;
  bool a_transposed, b_transposed;  // b_transposed: stored (n, k), as a weight is
};

// SmolLM2-135M's products at 1024 tokens, and the rank-8 and few-token ones.
inline constexpr GemmShape kGemmShapes[] = {
    {"up, y = x W^T", 1024, 1536, 576, false, true},
    {"down, y = x W^T", 1024, 576, 1536, false, true},
    {"key, y = x W^T", 1024, 192, 576, false, true},
    {"up, dx = dy W", 1024, 576, 1536, false, false},
    {"down, dx = dy W", 1024, 1536, 576, false, false},
    {"up, dW = dy^T x", 1536, 576, 1024, true, false},
    {"down, dW = dy^T x", 576, 1536, 1024, true, false},
    {"head, y = x W^T", 1024, 49152, 576, false, true},
    {"head, dx = dy W", 1024, 576, 49152, false, false},
    {"square", 2048, 2048, 2048, false, true},
    {"LoRA down", 1024, 8, 576, false, true},
    {"LoRA up", 1024, 576, 8, false, true},
    {"32 tokens", 32, 1536, 576, false, true},
    {"8 tokens, head", 8, 49152, 576, false, true},
    {"1 token, head", 1, 49152, 576, false, true},
    {"1 token, W (k, n)", 1, 1536, 49152, false, false},
};

struct AttentionShape {
  int64_t tokens, documents, heads, kv_heads, dim;
  bool causal = true;
  int64_t buckets = 0;  // of relative biases
  double dropout = 0;
};
// Language models', a vision transformer's of four pictures (ViT-g/14 at 224 pixels), and a T5
// encoder's without biases, with them, and with dropout.
inline constexpr AttentionShape kAttentionShapes[] = {{128, 8, 9, 3, 64},
                                                      {256, 4, 9, 3, 64},
                                                      {1024, 1, 9, 3, 64},
                                                      {4096, 1, 9, 3, 64},
                                                      {1024, 1, 8, 8, 64},
                                                      {1024, 1, 8, 2, 128},
                                                      {1024, 1, 8, 8, 80},
                                                      {1024, 1, 4, 4, 100},
                                                      {257, 4, 16, 16, 88, false},
                                                      {512, 2, 12, 12, 64, false},
                                                      {512, 2, 12, 12, 64, false, 32},
                                                      {512, 2, 12, 12, 64, false, 0, 0.1}};

inline const char* extras(const AttentionShape& s) {
  return s.buckets > 0 ? " biases" : s.dropout > 0 ? " dropout" : "";
}

// Pairs that see each other only; the backward pass has five products to the forward pass's two.
inline double attention_flops(const AttentionShape& s) {
  return 4.0 * double(s.documents * s.heads * s.dim) *
         (s.causal ? double(s.tokens) * double(s.tokens + 1) / 2
                   : double(s.tokens) * double(s.tokens));
}

}  // namespace snug::bench
