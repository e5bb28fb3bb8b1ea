// Quantized weights back to numbers, for kernels_impl.h. A block's elements are 16 different
// numbers at most: its scale times the 16 values, rounded to the wanted type once; then each code
// picks one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cpu/linalg/isa/kernels.h"
#include "core/kernels/cpu/linalg/with_type.h"

namespace snug::kernels::cpu {
namespace {

#ifdef __AVX512F__

// The numbers that a block's codes stand for, in one register: 16 floats, or 16 halves twice, since
// a lookup among 32 then needs no masking of the codes' upper bits.
template <class T>
struct BlockNumbers {
  __m512i table;
};

template <class T>
SNUG_INLINE BlockNumbers<T> numbers_of_block(const float* values, float scale) {
  const F product = load_f(values) * scale;
  if constexpr (__is_same(T, F32)) {
    return {(__m512i)product};
  } else {
    typename T::storage halves[16];
    store<16>(T{}, halves, product);
    const __m256i once = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves));
    return {_mm512_maskz_broadcast_i64x4(0xff, once)};
  }
}

// As many of 32 elements as the mask wants, from 16 bytes. Behind the codes there are always the
// scales, so that all 16 may be read.
SNUG_INLINE void look_up_32(const BlockNumbers<F32>& numbers, const uint8_t* codes,
                            __mmask32 wanted, float* out) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m512i pairs = _mm512_maskz_cvtepu8_epi64(
        0xff, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + 8 * half)));
    const __m512i indices = _mm512_or_si512(_mm512_maskz_srli_epi64(0xff, pairs, 4),
                                            _mm512_maskz_slli_epi64(0xff, pairs, 32));
    const __m512i found = _mm512_maskz_permutexvar_epi32(0xffff, indices, numbers.table);
    _mm512_mask_storeu_epi32(out + 16 * half, __mmask16(wanted >> (16 * half)), found);
  }
}
template <class T>
SNUG_INLINE void look_up_32(const BlockNumbers<T>& numbers, const uint8_t* codes, __mmask32 wanted,
                            uint16_t* out) {
  const __m512i pairs =
      _mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m512i indices = _mm512_or_si512(_mm512_maskz_srli_epi32(0xffff, pairs, 4),
                                          _mm512_maskz_slli_epi32(0xffff, pairs, 16));
  const __m512i found = _mm512_maskz_permutexvar_epi16(~__mmask32{0}, indices, numbers.table);
  _mm512_mask_storeu_epi16(out, wanted, found);
}

// Elements [first, first + count) of a weight, all of one block of 64.
template <class T>
SNUG_INLINE void look_up(const BlockNumbers<T>& numbers, const uint8_t* codes, int64_t first,
                         int64_t count, typename T::storage* out) {
  const uint8_t* from = codes + first / 2;
  if (first % 2 != 0) {  // the lower half of a byte: as if the upper one were not wanted
    typename T::storage pair[32];
    look_up_32(numbers, from++, __mmask32{3}, pair);
    *out++ = pair[1];
    --count;
  }
  for (; count >= 32; count -= 32, from += 16, out += 32) {
    look_up_32(numbers, from, ~__mmask32{0}, out);
  }
  if (count > 0) look_up_32(numbers, from, (__mmask32{1} << count) - 1, out);
}

#else

// The numbers that a block's codes stand for.
template <class T>
struct BlockNumbers {
  alignas(32) typename T::storage of_code[16];
};

template <class T>
SNUG_INLINE BlockNumbers<T> numbers_of_block(const float* values, float scale) {
  BlockNumbers<T> numbers;
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += kLanes) {
    store<kLanes>(T{}, numbers.of_code + i, load_f(values + i) * scale);
  }
  return numbers;
}

// 32 elements from 16 bytes.
template <class T>
SNUG_INLINE void look_up_32(const BlockNumbers<T>& numbers, const uint8_t* codes,
                            typename T::storage* out) {
#ifdef __AVX2__
  if constexpr (kLanes == 8 && sizeof(typename T::storage) == 4) {
    const __m256 low = _mm256_load_ps(numbers.of_code), high = _mm256_load_ps(numbers.of_code + 8);
    const __m256i shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      int32_t four;
      __builtin_memcpy(&four, codes + 4 * i, 4);
      const __m256i indices = _mm256_srlv_epi32(_mm256_set1_epi32(four), shifts);
      const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(indices, 28));
      _mm256_storeu_ps(out + 8 * i,
                       _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, indices),
                                        _mm256_permutevar8x32_ps(high, indices), upper));
    }
    return;
  }
  if constexpr (kLanes == 8 && sizeof(typename T::storage) == 2) {
    // The numbers' lower and upper bytes are looked up apart, 16 elements at a time.
    const __m256i table = _mm256_load_si256(reinterpret_cast<const __m256i*>(numbers.of_code));
    const __m256i bytes = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0,
                                           2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m256i split = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(table, bytes), 0xd8);
    const __m128i lower = _mm256_castsi256_si128(split);
    const __m128i upper = _mm256_extracti128_si256(split, 1);
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i even = _mm_and_si128(_mm_srli_epi16(packed, 4), mask);
    const __m128i odd = _mm_and_si128(packed, mask);
    const __m128i halves[2] = {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)};
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m128i low = _mm_shuffle_epi8(lower, halves[i]);
      const __m128i high = _mm_shuffle_epi8(upper, halves[i]);
      auto* to = reinterpret_cast<__m128i*>(out + 16 * i);
      _mm_storeu_si128(to, _mm_unpacklo_epi8(low, high));
      _mm_storeu_si128(to + 1, _mm_unpackhi_epi8(low, high));
    }
    return;
  }
#endif
  for (int i = 0; i < 16; ++i) {
    out[2 * i] = numbers.of_code[codes[i] >> 4];
    out[2 * i + 1] = numbers.of_code[codes[i] & 15];
  }
}

// Elements [first, first + count) of a weight, all of one block of 64.
template <class T>
SNUG_INLINE void look_up(const BlockNumbers<T>& numbers, const uint8_t* codes, int64_t first,
                         int64_t count, typename T::storage* out) {
  const uint8_t* from = codes + first / 2;
  if (first % 2 != 0) {
    *out++ = numbers.of_code[*from++ & 15];
    --count;
  }
  for (; count >= 32; count -= 32, from += 16, out += 32) look_up_32<T>(numbers, from, out);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = numbers.of_code[i % 2 == 0 ? from[i / 2] >> 4 : from[i / 2] & 15];
  }
}

#endif

template <int W>
SNUG_INLINE typename VectorOf<W>::F load_signed_bytes(const int8_t* codes) {
#ifdef __AVX512F__
  if constexpr (W == 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    return (typename VectorOf<W>::F)_mm512_maskz_cvtepi32_ps(
        0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, bytes));
  }
#endif
#ifdef __AVX2__
  if constexpr (W == 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
    return (typename VectorOf<W>::F)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
#endif
  typename VectorOf<W>::F result;
  for (int i = 0; i < W; ++i) result[i] = codes[i];
  return result;
}

template <class T>
SNUG_INLINE void scale_bytes(const int8_t* codes, float scale, int64_t count,
                             typename T::storage* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store<kLanes>(T{}, out + i, load_signed_bytes<kLanes>(codes + i) * scale * kInt8Step);
  }
  for (; i < count; ++i) store_one(T{}, out + i, float(codes[i]) * scale * kInt8Step);
}

// kFourBits: a block's length is then known when this is compiled.
template <class T, bool kFourBits>
void dequantize_stretch(const QuantizedMatrix& w, const float* values, int64_t first, int64_t count,
                        typename T::storage* out) {
  float space[kScalesAtOnce];
  const int64_t length = kFourBits ? kWeightBlock : w.cols;
  int64_t block = first / length, within = first % length;
  while (count > 0) {
    const int64_t left = (within + count + length - 1) / length;
    const int64_t blocks = left < kScalesAtOnce ? left : kScalesAtOnce;
    const float* scales = w.scales ? w.scales + block : scales_at(w, block, blocks, space);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t n = length - within < count ? length - within : count;
      const int64_t at = (block + b) * length + within;
      if constexpr (kFourBits) {
        look_up<T>(numbers_of_block<T>(values, scales[b]), w.codes, at, n, out);
      } else {
        scale_bytes<T>(reinterpret_cast<const int8_t*>(w.codes) + at, scales[b], n, out);
      }
      out += n;
      count -= n;
      within = 0;
    }
    block += blocks;
  }
}

// What a later stretch reads. The processor does not see such wide steps coming.
template <bool kFourBits>
SNUG_INLINE void prefetch_stretch(const QuantizedMatrix& w, int64_t first, int64_t count) {
  constexpr int64_t kLine = 64;
  const int64_t begin = kFourBits ? first / 2 : first;
  const int64_t bytes = kFourBits ? count / 2 : count;
  for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(w.codes + begin + i);
  if (kFourBits && w.scales) __builtin_prefetch(w.scales + first / kWeightBlock);
}

template <bool kFourBits>
void dequantize_all(const DequantizeArgs& args) {
  const QuantizedMatrix weight = *args.weight;
  const float* values = traits(weight.format).values;
  with_type(args.type, [&](auto type) {
    using T = decltype(type);
    auto* out = static_cast<typename T::storage*>(args.out);
    constexpr int64_t kAhead = 16;
    for (int64_t i = 0; i < args.stretches; ++i) {
      if (i + kAhead < args.stretches) {
        prefetch_stretch<kFourBits>(weight, args.first + (i + kAhead) * args.step, args.count);
      }
      dequantize_stretch<T, kFourBits>(weight, values, args.first + i * args.step, args.count,
                                       out + i * args.out_stride);
    }
  });
}

void dequantize_stretches(const DequantizeArgs& args) {
  if (traits(args.weight->format).values) {
    dequantize_all<true>(args);
  } else {
    dequantize_all<false>(args);
  }
}

}  // namespace
}  // namespace snug::kernels::cpu
