// Fixed-width vectors of float for kernels_impl.h, written with the compiler's vector extension so
// that one source serves every instruction set: SNUG_SIMD_WIDTH lanes, whatever the target makes of
// them. Included once per kernels_<isa>.cpp; everything here has internal linkage, because the same
// names are compiled with different target flags and must not be merged by the linker. For the same
// reason no other header with inline functions is included.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __AVX2__
#include <immintrin.h>
#endif
#include <stdint.h>

#define SNUG_INLINE static inline __attribute__((always_inline))

namespace snug::kernels::cpu {
namespace {

constexpr int kLanes = SNUG_SIMD_WIDTH;

template <int W>
struct VectorOf {
  typedef float F __attribute__((vector_size(W * 4)));
  typedef int32_t I __attribute__((vector_size(W * 4)));
  typedef uint32_t U __attribute__((vector_size(W * 4)));
  typedef uint16_t H __attribute__((vector_size(W * 2)));
  typedef F UnalignedF __attribute__((aligned(4), may_alias));
  typedef H UnalignedH __attribute__((aligned(2), may_alias));
};

using F = VectorOf<kLanes>::F;
using F8 = VectorOf<8>::F;  // for transposing, eight lanes on every target

struct F32 {
  using storage = float;
};
struct BF16 {
  using storage = uint16_t;
};
struct F16 {
  using storage = uint16_t;
};

SNUG_INLINE float float_of_bits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
SNUG_INLINE uint32_t bits_of_float(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}

// --- One element
// -----------------------------------------------------------------------------------

SNUG_INLINE float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16;
  const uint32_t rest = half & 0x7fff;
  if (rest >= 0x7c00) return float_of_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  // Shifting puts exponent and mantissa in place; the product mends the bias, subnormals included.
  return float_of_bits(sign | bits_of_float(float_of_bits(rest << 13) * 0x1p112f));
}

// Round to nearest, ties to even.
SNUG_INLINE uint16_t float_to_half(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);
  if (magnitude <
      0x38800000) {  // subnormal: adding 0.5 leaves the rounded mantissa in the low bits
    return uint16_t(sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000));
  }
  return uint16_t(sign | ((magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13));
}

SNUG_INLINE uint16_t float_to_bfloat(float value) {
  const uint32_t bits = bits_of_float(value);
  if (value != value) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

SNUG_INLINE float load_one(F32, const float* p) { return *p; }
SNUG_INLINE float load_one(BF16, const uint16_t* p) { return float_of_bits(uint32_t(*p) << 16); }
SNUG_INLINE float load_one(F16, const uint16_t* p) { return half_to_float(*p); }
SNUG_INLINE void store_one(F32, float* p, float v) { *p = v; }
SNUG_INLINE void store_one(BF16, uint16_t* p, float v) { *p = float_to_bfloat(v); }
SNUG_INLINE void store_one(F16, uint16_t* p, float v) { *p = float_to_half(v); }

// --- A vector of W elements, at any address
// --------------------------------------------------------

template <int W>
SNUG_INLINE typename VectorOf<W>::F load(F32, const float* p) {
  return *reinterpret_cast<const typename VectorOf<W>::UnalignedF*>(p);
}
template <int W>
SNUG_INLINE typename VectorOf<W>::F load(BF16, const uint16_t* p) {
  using V = VectorOf<W>;
#ifdef __AVX2__  // one instruction, where g++ 12 makes four of the general form
  if constexpr (W == 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return (typename V::F)((typename V::U)_mm256_cvtepu16_epi32(half) << 16);
  }
#endif
#ifdef __AVX512F__  // the forms with a mask, since g++ 12 warns inside those without
  if constexpr (W == 16) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return (typename V::F)((typename V::U)_mm512_maskz_cvtepu16_epi32(0xffff, half) << 16);
  }
#endif
  const typename V::H half = *reinterpret_cast<const typename V::UnalignedH*>(p);
  return (typename V::F)(__builtin_convertvector(half, typename V::U) << 16);
}
template <int W>
SNUG_INLINE typename VectorOf<W>::F load(F16, const uint16_t* p) {
#ifdef __F16C__
  if constexpr (W == 8) {
    return (typename VectorOf<W>::F)_mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
#endif
#ifdef __AVX512F__
  if constexpr (W == 16) {
    return (typename VectorOf<W>::F)_mm512_maskz_cvtph_ps(
        0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
#endif
  typename VectorOf<W>::F out;
  for (int i = 0; i < W; ++i) out[i] = half_to_float(p[i]);
  return out;
}

template <int W>
SNUG_INLINE void store(F32, float* p, typename VectorOf<W>::F v) {
  *reinterpret_cast<typename VectorOf<W>::UnalignedF*>(p) = v;
}
template <int W>
SNUG_INLINE void store(BF16, uint16_t* p, typename VectorOf<W>::F v) {
  using V = VectorOf<W>;
  const typename V::U bits = (typename V::U)v;
  const typename V::U rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const typename V::U result = v != v ? (bits >> 16) | 0x40 : rounded;
#ifdef __AVX2__
  if constexpr (W == 8) {
    const __m256i wide = (__m256i)result;
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1)));
    return;
  }
#endif
  *reinterpret_cast<typename V::UnalignedH*>(p) = __builtin_convertvector(result, typename V::H);
}
template <int W>
SNUG_INLINE void store(F16, uint16_t* p, typename VectorOf<W>::F v) {
#ifdef __F16C__
  if constexpr (W == 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph((__m256)v, 0));
    return;
  }
#endif
#ifdef __AVX512F__
  if constexpr (W == 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_maskz_cvtps_ph(0xffff, (__m512)v, 0));
    return;
  }
#endif
  for (int i = 0; i < W; ++i) p[i] = float_to_half(v[i]);
}

SNUG_INLINE F load_f(const float* p) { return load<kLanes>(F32{}, p); }
SNUG_INLINE void store_f(float* p, F v) { store<kLanes>(F32{}, p, v); }
SNUG_INLINE F broadcast(float x) { return x - F{}; }
SNUG_INLINE F maximum(F a, F b) { return a > b ? a : b; }

// In a fixed order, pairs of halves, so that every run adds alike.
SNUG_INLINE float sum_of_lanes(F v) {
  float lanes[kLanes];
  store_f(lanes, v);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// exp(x) to about 1 ulp for x <= 88; 0 below -87.3, so that a masked score of -infinity vanishes;
// NaN stays.
SNUG_INLINE F exponential(F x) {
  using U = VectorOf<kLanes>::U;
  const F too_small = broadcast(-87.33f);
  const F clamped = x < too_small ? too_small : x;
  const F magic = broadcast(0x1.8p23f);  // adding it rounds to an integer, left in the low bits
  const F shifted = clamped * 0x1.715476p0f + magic;
  const F n = shifted - magic;
  const F r = (clamped - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;  // x - n*ln 2, in two parts
  F p = broadcast(
      0x1.6a2352p-10f);  // (exp(r) - 1 - r) / r^2 on [-ln2/2, ln2/2], fitted for relative error
  p = p * r + 0x1.123a6cp-7f;
  p = p * r + 0x1.5558f4p-5f;
  p = p * r + 0x1.55549p-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = (p * r) * r + r + 1.f;
  const F power = (F)(((U)shifted << 23) + 0x3f800000u);  // 2^n by its exponent bits
  return x < too_small ? F{} : p * power;
}

}  // namespace
}  // namespace snug::kernels::cpu
