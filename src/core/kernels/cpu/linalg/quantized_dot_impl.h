// Few rows times a 4-bit weight whose rows are whole blocks, for kernels_impl.h with AVX-512: the
// codes go from memory through a lookup straight into multiply-adds. 16 bytes hold 16 even and 16
// odd elements, so that A is split alike beforehand.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cpu/linalg/isa/kernels.h"
#include "core/kernels/cpu/linalg/with_type.h"

#ifdef __AVX512F__

namespace snug::kernels::cpu {
namespace {

// Puts the even ones of each 32 numbers first, then the odd ones.
void split_pairs(float* x, int64_t count) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
  for (int64_t i = 0; i + 32 <= count; i += 32) {
    const __m512 low = _mm512_loadu_ps(x + i), high = _mm512_loadu_ps(x + i + 16);
    _mm512_storeu_ps(x + i, _mm512_permutex2var_ps(low, even, high));
    _mm512_storeu_ps(x + i + 16, _mm512_permutex2var_ps(low, odd, high));
  }
}

// As storing them as `type` and loading them again would, without leaving the lanes.
SNUG_INLINE F rounded_to(Scalar type, F x) {
  using U = VectorOf<16>::U;
  if (type == Scalar::F32) return x;
  if (type == Scalar::BF16) {
    const U bits = (U)x;
    const U rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return (F)((x != x ? bits : rounded) & 0xffff0000u);
  }
  uint16_t halves[16];
  store<16>(F16{}, halves, x);
  return load<16>(F16{}, halves);
}

// Rows x Cols dot products at once; a sum does not depend on how many are made beside it.
template <int Rows, int Cols>
void quantized_dot_block(const QuantizedDotArgs& args, int64_t col) {
  const QuantizedMatrix& w = *args.weight;
  const F values = load_f(traits(w.format).values);
  const int64_t blocks = w.cols / kWeightBlock;
  const float* a = args.a;
  float space[Cols][kScalesAtOnce];
  F sums[Rows][Cols] = {};
  for (int64_t first = 0; first < blocks; first += kScalesAtOnce) {
    const int64_t count = blocks - first < kScalesAtOnce ? blocks - first : kScalesAtOnce;
    const float* scales[Cols];
    const uint8_t* codes[Cols];
    for (int j = 0; j < Cols; ++j) {
      const int64_t block = (args.first + col + j) * blocks + first;
      scales[j] = scales_at(w, block, count, space[j]);
      codes[j] = w.codes + block * (kWeightBlock / 2);
    }
    for (int64_t b = 0; b < count; ++b) {
      F tables[Cols];
#pragma GCC unroll 4
      for (int j = 0; j < Cols; ++j) {
        tables[j] = rounded_to(args.type, values * scales[j][b]);
        __builtin_prefetch(codes[j] + 512);
      }
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half, a += 32) {
        F even[Cols], odd[Cols];
#pragma GCC unroll 4
        for (int j = 0; j < Cols; ++j) {
          const __m512i pairs = _mm512_maskz_cvtepu8_epi32(
              0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes[j] + 16 * half)));
          const __m512i upper = _mm512_maskz_srli_epi32(0xffff, pairs, 4);
          even[j] = (F)_mm512_maskz_permutexvar_ps(0xffff, upper, (__m512)tables[j]);
          odd[j] = (F)_mm512_maskz_permutexvar_ps(0xffff, pairs, (__m512)tables[j]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) {
          const F x = load_f(a + i * args.a_stride), y = load_f(a + i * args.a_stride + 16);
#pragma GCC unroll 4
          for (int j = 0; j < Cols; ++j) {
            sums[i][j] += x * even[j];
            sums[i][j] += y * odd[j];
          }
        }
      }
      for (int j = 0; j < Cols; ++j) codes[j] += kWeightBlock / 2;
    }
  }
  for (int i = 0; i < Rows; ++i) {
    for (int j = 0; j < Cols; ++j) {
      args.sums[i * args.sums_stride + col + j] = sum_of_lanes(sums[i][j]);
    }
  }
}

// As many columns at once as the registers have room for sums.
template <int Rows>
void quantized_dot_rows(const QuantizedDotArgs& args) {
  constexpr int kCols = Rows <= 4 ? 4 : 2;
  int64_t col = 0;
  for (; col + kCols <= args.cols; col += kCols) quantized_dot_block<Rows, kCols>(args, col);
  for (; col < args.cols; ++col) quantized_dot_block<Rows, 1>(args, col);
}

void quantized_dot(const QuantizedDotArgs& args) {
  switch (args.m) {
    case 1:
      return quantized_dot_rows<1>(args);
    case 2:
      return quantized_dot_rows<2>(args);
    case 3:
      return quantized_dot_rows<3>(args);
    case 4:
      return quantized_dot_rows<4>(args);
    case 5:
      return quantized_dot_rows<5>(args);
    case 6:
      return quantized_dot_rows<6>(args);
    case 7:
      return quantized_dot_rows<7>(args);
    default:
      return quantized_dot_rows<8>(args);
  }
}
static_assert(kMaxSkinnyRows == 8);

}  // namespace
}  // namespace snug::kernels::cpu

#endif
