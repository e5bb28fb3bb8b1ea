// The register tile for AVX512-BF16: a pair of bfloat16 products a lane and instruction, summed in
// float32. Twice the rate of float32.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/linalg/bf16_pairs.h"

namespace snug::kernels::cpu {
namespace {

constexpr int kRows = 12, kCols = 32;

void multiply_tile(int64_t k, const float* a, const float* b, float* c, int64_t c_stride,
                   float alpha, bool accumulate) {
  __m512 sums[kRows][2] = {};
  for (; k > 0; k -= kStepPairs) {
#pragma GCC unroll 4
    for (int p = 0; p < kStepPairs; ++p) {
      const auto left = (__m512bh)_mm512_load_ps(b + p * kGroup);
      const auto right = (__m512bh)_mm512_load_ps(b + (kStepPairs + p) * kGroup);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const auto x = (__m512bh)_mm512_set1_ps(a[i * kStepPairs + p]);
        sums[i][0] = _mm512_dpbf16_ps(sums[i][0], x, left);
        sums[i][1] = _mm512_dpbf16_ps(sums[i][1], x, right);
      }
    }
    a += kRows * kStepPairs;
    b += kCols * kStepPairs;
  }
  const __m512 factor = _mm512_set1_ps(alpha);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      float* out = c + i * c_stride + v * kGroup;
      __m512 result = sums[i][v] * factor;
      if (accumulate) result += _mm512_loadu_ps(out);
      _mm512_storeu_ps(out, result);
    }
  }
}

constexpr Tile kTile = {.mr = kRows,
                        .nr = kCols,
                        .depth_step = kStepDepth,
                        .per_float = 2,
                        .multiply = multiply_tile,
                        .pack_a = pack_pairs<Side::A, kRows>,
                        .pack_b = pack_pairs<Side::B, kCols>};

}  // namespace

const Tile& avx512_bf16_tile() { return kTile; }

}  // namespace snug::kernels::cpu
