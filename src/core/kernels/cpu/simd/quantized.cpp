// Blocks of a weight in 4 bits and rows in 8; see core/kernels/cpu/quantized.h. With AVX-512 a code
// takes two lookups among 32 bins and one comparison, and the pairs that share a byte come from the
// even and the odd elements of one register.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/loops.h"

namespace snug::kernels::cpu {
namespace {

constexpr int64_t kElements = 64;  // kWeightBlock
constexpr float kLeastScale = 1e-38f;

// By their bits, so that NaN is the largest of all and infinity next.
SNUG_INLINE U larger_bits(U a, U b) { return a > b ? a : b; }

SNUG_INLINE uint32_t largest_lane(U v) {
  uint32_t lanes[kLanes];
  __builtin_memcpy(lanes, &v, sizeof v);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) {
      lanes[k] = lanes[k + half] > lanes[k] ? lanes[k + half] : lanes[k];
    }
  }
  return lanes[0];
}

SNUG_INLINE bool is_finite_bits(uint32_t bits) { return (bits & 0x7f800000u) != 0x7f800000u; }

// The processor's own prefetching leaves a loop of this much arithmetic waiting for memory.
constexpr int64_t kBytesAhead = 4096;
template <class T>
SNUG_INLINE void prefetch_block(const typename T::storage* x) {
  constexpr int64_t kLine = 64, kBytes = kElements * int64_t(sizeof(*x));
  const char* ahead = reinterpret_cast<const char*>(x) + kBytesAhead;
#pragma GCC unroll 4
  for (int64_t i = 0; i < kBytes; i += kLine) __builtin_prefetch(ahead + i);
}

SNUG_INLINE float inverse_of(float absmax) {
  return 1.0f / (absmax < kLeastScale ? kLeastScale : absmax);  // NaN stays
}

// One element after the other: for scales that are infinity or NaN.
template <class T>
void encode_slowly(const FourBitCoder& coder, const typename T::storage* x, float inverse,
                   uint8_t* codes) {
  const auto code = [&](int64_t i) {
    const float scaled = load_one(T{}, x + i) * inverse;
    int rank = 0;
    while (rank < 15 && !(scaled <= coder.borders[rank])) ++rank;
    return coder.code_of_rank[rank];
  };
  for (int64_t i = 0; i < kElements / 2; ++i) {
    codes[i] = uint8_t(code(2 * i) << 4 | code(2 * i + 1));
  }
}

#ifdef __AVX512F__

struct EvenOdd {
  __m512 even, odd;
};

// The even and the odd ones of 32 elements.
SNUG_INLINE EvenOdd even_and_odd(__m512 low, __m512 high) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return {_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high)};
}
SNUG_INLINE EvenOdd load_even_odd(F32, const float* x) {
  return even_and_odd(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16));
}
SNUG_INLINE EvenOdd load_even_odd(F16, const uint16_t* x) {
  return even_and_odd((__m512)load<16>(F16{}, x), (__m512)load<16>(F16{}, x + 16));
}
SNUG_INLINE EvenOdd load_even_odd(BF16, const uint16_t* x) {
  const __m512i both = _mm512_loadu_si512(x);
  const __m512i upper = _mm512_set1_epi32(int32_t(0xffff0000));
  return {(__m512)_mm512_maskz_slli_epi32(0xffff, both, 16), (__m512)_mm512_and_si512(both, upper)};
}

SNUG_INLINE uint32_t absmax_bits(F32, const float* x) {
  U most = {};
  for (int i = 0; i < 4; ++i) {
    most = larger_bits(most, (U)magnitude_of(load<16>(F32{}, x + 16 * i)));
  }
  return largest_lane(most);
}
// The largest magnitude's bits, as they are stored.
SNUG_INLINE uint16_t absmax_of_halves(const uint16_t* x) {
  const __m512i mask = _mm512_set1_epi16(0x7fff);
  const __m512i most =
      _mm512_maskz_max_epu16(~__mmask32{0}, _mm512_and_si512(_mm512_loadu_si512(x), mask),
                             _mm512_and_si512(_mm512_loadu_si512(x + 32), mask));
  // The forms with a mask, since g++ 12 warns inside those without.
  const __m256i half = _mm256_max_epu16(_mm512_maskz_extracti64x4_epi64(0xff, most, 0),
                                        _mm512_maskz_extracti64x4_epi64(0xff, most, 1));
  const __m128i quarter =
      _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  // There is an instruction for the least of eight.
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(quarter, _mm_set1_epi16(-1)));
  return uint16_t(~_mm_extract_epi16(least, 0));
}
SNUG_INLINE uint32_t absmax_bits(BF16, const uint16_t* x) {
  return uint32_t(absmax_of_halves(x)) << 16;
}
SNUG_INLINE uint32_t absmax_bits(F16, const uint16_t* x) {
  return bits_of_float(half_to_float(absmax_of_halves(x)));
}

struct Bins {
  __m512 borders[2];
  __m512i below[2], above[2];
};

SNUG_INLINE Bins load_bins(const FourBitCoder& coder) {
  Bins bins;
  for (int i = 0; i < 2; ++i) {
    bins.borders[i] = _mm512_load_ps(coder.bin_borders + 16 * i);
    bins.below[i] = _mm512_load_si512(coder.below + 16 * i);
    bins.above[i] = _mm512_load_si512(coder.above + 16 * i);
  }
  return bins;
}

// Lookups heed the lowest five bits of an index. A number added to 3 (or 1) has its bin in the
// highest bits of the mantissa.
template <bool kByMagnitude>
SNUG_INLINE __m512i encode(const Bins& bins, __m512 x) {
  __m512 compared = x;
  __m512i bin;
  if constexpr (kByMagnitude) {
    compared = (__m512)magnitude_of((F)x);
    const __m512 position = compared * kBinScale + 1.0f;
    const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ);
    bin =
        _mm512_maskz_srli_epi32(0xffff, (__m512i)position, 19);  // bit 4 is set, from 1's exponent
    bin = _mm512_mask_xor_epi32(bin, __mmask16(~positive), bin, _mm512_set1_epi32(16));
  } else {
    const __m512 position = x * kBinScale + 3.0f;
    bin = _mm512_maskz_srli_epi32(0xffff, (__m512i)position, 18);
  }
  const __m512 border = _mm512_permutex2var_ps(bins.borders[0], bin, bins.borders[1]);
  const __m512i below = _mm512_permutex2var_epi32(bins.below[0], bin, bins.below[1]);
  const __mmask16 beyond = _mm512_cmp_ps_mask(compared, border, _CMP_GT_OQ);
  if constexpr (kByMagnitude) {
    const __m512i above = _mm512_permutex2var_epi32(bins.above[0], bin, bins.above[1]);
    return _mm512_mask_mov_epi32(below, beyond, above);
  } else {
    return _mm512_mask_add_epi32(below, beyond, below, _mm512_set1_epi32(1));
  }
}

template <class T, bool kByMagnitude>
void quantize_blocks(const FourBitBlocks& args, int64_t begin, int64_t end) {
  const FourBitCoder& coder = *args.coder;
  const Bins bins = load_bins(coder);
  const auto* x = static_cast<const typename T::storage*>(args.elements) + begin * kElements;
  uint8_t* codes = args.codes + begin * (kElements / 2);
  float* scales = args.scales + begin;
  for (int64_t b = begin; b < end; ++b, x += kElements, codes += kElements / 2) {
    prefetch_block<T>(x);
    const uint32_t bits = absmax_bits(T{}, x);
    const float absmax = float_of_bits(bits), inverse = inverse_of(absmax);
    *scales++ = absmax;
    if (!is_finite_bits(bits)) {
      encode_slowly<T>(coder, x, inverse, codes);
      continue;
    }
    for (int i = 0; i < 2; ++i) {
      const EvenOdd pair = load_even_odd(T{}, x + 32 * i);
      const __m512i even = encode<kByMagnitude>(bins, pair.even * inverse);
      const __m512i odd = encode<kByMagnitude>(bins, pair.odd * inverse);
      const __m512i both = _mm512_or_si512(_mm512_maskz_slli_epi32(0xffff, even, 4), odd);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16 * i),
                       _mm512_maskz_cvtepi32_epi8(0xffff, both));
    }
  }
}

template <class T>
void quantize(const FourBitBlocks& args, int64_t begin, int64_t end) {
  if (args.coder->by_magnitude) {
    quantize_blocks<T, true>(args, begin, end);
  } else {
    quantize_blocks<T, false>(args, begin, end);
  }
}

#else

// Entry index & 7 of eight.
SNUG_INLINE F one_of_eight(const float* table, I index) {
#ifdef __AVX2__
  return (F)_mm256_permutevar8x32_ps(_mm256_load_ps(table), (__m256i)index);
#else
  F result;
  for (int k = 0; k < kLanes; ++k) result[k] = table[index[k] & 7];
  return result;
#endif
}

// Borders in the order in which a search by halving asks for them: entry i of step s is asked for
// where the bits found so far are i.
struct Search {
  alignas(32) float steps[4][8];
};

Search make_search(const FourBitCoder& coder) {
  Search search = {};
  for (int step = 0; step < 4; ++step) {
    const int stride = 8 >> step;
    for (int i = 0; i < 1 << step; ++i) {
      search.steps[step][i] = coder.borders[2 * i * stride + stride - 1];
    }
  }
  return search;
}

SNUG_INLINE I rank_of(const Search& search, F x) {
  I rank = -(I)(x > search.steps[0][0]);  // a true comparison is -1
  for (int step = 1; step < 4; ++step) {
    rank = rank + rank - (I)(x > one_of_eight(search.steps[step], rank));
  }
  return rank;
}

template <class T>
void quantize(const FourBitBlocks& args, int64_t begin, int64_t end) {
  const FourBitCoder& coder = *args.coder;
  const Search search = make_search(coder);
  uint8_t upper[16], lower[16];
  for (int i = 0; i < 16; ++i) {
    lower[i] = coder.code_of_rank[i];
    upper[i] = uint8_t(lower[i] << 4);
  }
  for (int64_t b = begin; b < end; ++b) {
    const auto* x = static_cast<const typename T::storage*>(args.elements) + b * kElements;
    uint8_t* codes = args.codes + b * (kElements / 2);
    prefetch_block<T>(x);
    F numbers[kElements / kLanes];
    U most = {};
    for (int i = 0; i < kElements / kLanes; ++i) {
      numbers[i] = load_lanes<T>(x + i * kLanes);
      most = larger_bits(most, (U)magnitude_of(numbers[i]));
    }
    const uint32_t bits = largest_lane(most);
    const float absmax = float_of_bits(bits), inverse = inverse_of(absmax);
    args.scales[b] = absmax;
    if (!is_finite_bits(bits)) {
      encode_slowly<T>(coder, x, inverse, codes);
      continue;
    }
    int32_t ranks[kElements];
    for (int i = 0; i < kElements / kLanes; ++i) {
      const I rank = rank_of(search, numbers[i] * inverse);
      __builtin_memcpy(ranks + i * kLanes, &rank, sizeof rank);
    }
    for (int i = 0; i < kElements / 2; ++i) {
      codes[i] = uint8_t(upper[ranks[2 * i]] | lower[ranks[2 * i + 1]]);
    }
  }
}

#endif

// The compiler may not join this product with an addition into one rounding.
SNUG_INLINE F rounded_product(F a, float b) {
  F product = a * b;
#if defined(__AVX512F__)
  asm("" : "+v"(product));
#elif defined(__x86_64__)
  asm("" : "+x"(product));
#else
  asm("" : "+w"(product));
#endif
  return product;
}

template <class T>
void quantize_row(const typename T::storage* x, int64_t cols, int8_t* codes, float* scale) {
  U most = {};
  sweep(0, cols, [&](int64_t i, auto lanes) {
    __builtin_prefetch(reinterpret_cast<const char*>(x + i) + kBytesAhead);
    most = larger_bits(most, (U)magnitude_of(read<T>(x, i, lanes)));
  });
  const float absmax = float_of_bits(largest_lane(most));
  *scale = absmax;
  const float factor = 1.0f / absmax * 127.0f;
  // Adding this rounds to an integer, left in the low bits; NaN and infinity leave 0 there.
  const F magic = broadcast(0x1.8p23f);
  sweep(0, cols, [&](int64_t i, auto lanes) {
    const I rounded = (I)(rounded_product(read<T>(x, i, lanes), factor) + magic);
    if constexpr (__is_same(decltype(lanes), Whole)) {
#ifdef __AVX512F__
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i),
                       _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)rounded));
#else
      for (int k = 0; k < kLanes; ++k) codes[i + k] = int8_t(rounded[k]);
#endif
    } else {
      for (int64_t k = 0; k < lanes.count; ++k) codes[i + k] = int8_t(rounded[k]);
    }
  });
}

}  // namespace

namespace SNUG_ISA {

void quantize_4bit_blocks(const FourBitBlocks& args, int64_t begin, int64_t end) {
  const FourBitBlocks copy = args;
  with_type(copy.type, [&](auto type) { quantize<decltype(type)>(copy, begin, end); });
}

void quantize_int8_rows(const Int8Rows& args, int64_t begin, int64_t end) {
  const Int8Rows copy = args;
  with_type(copy.type, [&](auto type) {
    using T = decltype(type);
    const auto* x = static_cast<const typename T::storage*>(copy.elements);
    for (int64_t row = begin; row < end; ++row) {
      quantize_row<T>(x + row * copy.cols, copy.cols, copy.codes + row * copy.cols,
                      copy.scales + row);
    }
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
