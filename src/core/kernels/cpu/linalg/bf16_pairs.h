// Panels for processors that multiply bfloat16 themselves: they sum products of pairs along the
// depth, so a panel's element is a pair, four bytes. Depth is filled up with zeros to whole steps
// of 16 pairs; a step of a panel holds its lines in groups of 16 (or of the panel's width, where
// that is less): of A line by line, 16 pairs each; of B pair by pair, 16 lines each. One step of a
// group is then what an AMX tile loads, 1 KiB in a row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include "core/kernels/cpu/linalg/isa/kernels.h"

namespace snug::kernels::cpu {
namespace {

constexpr int kStepPairs = 16, kStepDepth = 32, kGroup = 16;
using Pairs = __m512i[kGroup];  // 16 vectors of 16 pairs

inline __attribute__((always_inline)) __mmask32 first(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : count <= 0 ? 0 : (__mmask32{1} << count) - 1;
}

// out[i]: the step's pairs of line i; zeros beyond lines and depth.
inline void load_lines(const PackArgs& args, int64_t line, int64_t depth, Pairs& out) {
  const auto* data = static_cast<const uint16_t*>(args.data) + line * args.line_stride + depth;
  const __mmask32 mask = first(args.depth - depth);
  for (int i = 0; i < kGroup; ++i) {
    const __mmask32 wanted = line + i < args.lines ? mask : 0;
    out[i] = _mm512_maskz_loadu_epi16(wanted, data + i * args.line_stride);
  }
}

// out[p]: pair p of 16 lines that follow each other in memory.
inline void load_pairs(const PackArgs& args, int64_t line, int64_t depth, Pairs& out) {
  const auto* data = static_cast<const uint16_t*>(args.data) + line + depth * args.depth_stride;
  const auto mask = static_cast<__mmask16>(first(args.lines - line));
  for (int p = 0; p < kStepPairs; ++p) {
    const int64_t row = depth + 2 * p;
    const __mmask16 even = row < args.depth ? mask : 0, odd = row + 1 < args.depth ? mask : 0;
    const __m256i low = _mm256_maskz_loadu_epi16(even, data + 2 * p * args.depth_stride);
    const __m256i high = _mm256_maskz_loadu_epi16(odd, data + (2 * p + 1) * args.depth_stride);
    const __m512i shifted =
        _mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, high), 16);
    out[p] = _mm512_or_epi32(_mm512_maskz_cvtepu16_epi32(0xffff, low), shifted);
  }
}

// v[i] lane j  <->  v[j] lane i. The forms with a mask, since g++ 12 warns inside those without.
inline void transpose(Pairs& v) {
  constexpr __mmask16 kAll = 0xffff;
  __m512i s[kGroup];
  for (int i = 0; i < kGroup; i += 2) {
    s[i] = _mm512_maskz_unpacklo_epi32(kAll, v[i], v[i + 1]);
    s[i + 1] = _mm512_maskz_unpackhi_epi32(kAll, v[i], v[i + 1]);
  }
  for (int i = 0; i < kGroup; i += 4) {
    v[i] = _mm512_maskz_unpacklo_epi64(0xff, s[i], s[i + 2]);
    v[i + 1] = _mm512_maskz_unpackhi_epi64(0xff, s[i], s[i + 2]);
    v[i + 2] = _mm512_maskz_unpacklo_epi64(0xff, s[i + 1], s[i + 3]);
    v[i + 3] = _mm512_maskz_unpackhi_epi64(0xff, s[i + 1], s[i + 3]);
  }
  for (int h = 0; h < kGroup; h += 8) {
    for (int i = h; i < h + 4; ++i) {
      s[i] = _mm512_maskz_shuffle_i32x4(kAll, v[i], v[i + 4], 0x88);
      s[i + 4] = _mm512_maskz_shuffle_i32x4(kAll, v[i], v[i + 4], 0xdd);
    }
  }
  for (int i = 0; i < 8; ++i) {
    v[i] = _mm512_maskz_shuffle_i32x4(kAll, s[i], s[i + 8], 0x88);
    v[i + 8] = _mm512_maskz_shuffle_i32x4(kAll, s[i], s[i + 8], 0xdd);
  }
}

enum class Side { A, B };

template <Side kSide, int kWidth>
void pack_pairs(const PackArgs& args) {
  constexpr int kLines = kWidth < kGroup ? kWidth : kGroup;
  static_assert(kWidth % kLines == 0);
  constexpr bool kByLine = kSide == Side::A;
  const bool line_by_line = args.depth_stride == 1;
  const int64_t steps = (args.depth + kStepDepth - 1) / kStepDepth;
  const int64_t groups = (args.lines + kWidth - 1) / kWidth * (kWidth / kLines);
  const auto pack_step = [&](int64_t group, int64_t step) {
    Pairs block;
    const int64_t line = group * kLines;
    if (line_by_line) {
      load_lines(args, line, step * kStepDepth, block);
    } else {
      load_pairs(args, line, step * kStepDepth, block);
    }
    if (line_by_line != kByLine) transpose(block);
    const int64_t panel = line / kWidth, within = line % kWidth;
    float* out = args.out + (panel * steps + step) * kWidth * kStepPairs + within * kStepPairs;
    for (int i = 0; i < (kByLine ? kLines : kGroup); ++i) {
      _mm512_storeu_si512(out + i * kStepPairs, block[i]);
    }
  };
  // Along the memory, so that each line of the cache is used while it is there.
  if (line_by_line) {
    for (int64_t group = 0; group < groups; ++group) {
      for (int64_t step = 0; step < steps; ++step) pack_step(group, step);
    }
  } else {
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t group = 0; group < groups; ++group) pack_step(group, step);
    }
  }
}

}  // namespace
}  // namespace snug::kernels::cpu
