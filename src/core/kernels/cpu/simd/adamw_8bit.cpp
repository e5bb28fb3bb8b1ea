// AdamW with 8-bit moments on blocks of one tensor; see core/kernels/optimizers.h. A
// block's moments wait in the stack's arrays until their largest magnitude is known.
// SPDX-License-Identifier: Apache-2.0
#include "core/kernels/cpu/simd/kernels.h"
#include "core/kernels/cpu/simd/math.h"
#include "core/kernels/cpu/simd/weights.h"
#include "core/kernels/optimizer_formulas.h"

namespace snug::kernels::cpu {
namespace {

template <int W = kLanes>
SNUG_INLINE typename VectorOf<W>::I read_codes(const uint8_t* codes) {
#ifdef __AVX512F__
  if constexpr (W == 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    return (typename VectorOf<W>::I)_mm512_maskz_cvtepu8_epi32(0xffff, bytes);
  }
#endif
#ifdef __AVX2__
  if constexpr (W == 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
    return (typename VectorOf<W>::I)_mm256_cvtepu8_epi32(bytes);
  }
#endif
  typename VectorOf<W>::I result;
  for (int k = 0; k < W; ++k) result[k] = codes[k];
  return result;
}

template <int W = kLanes>
SNUG_INLINE void write_codes(uint8_t* codes, typename VectorOf<W>::I values) {
#ifdef __AVX512F__
  if constexpr (W == 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes),
                     _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)values));
    return;
  }
#endif
#ifdef __AVX2__
  if constexpr (W == 8) {
    const __m256i wide = (__m256i)values;
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(codes), _mm_packus_epi16(halves, halves));
    return;
  }
#endif
  for (int k = 0; k < W; ++k) codes[k] = static_cast<uint8_t>(values[k]);
}

// Entry index & 7 of a table of 16, whose upper half does not count.
template <int W = kLanes>
SNUG_INLINE typename VectorOf<W>::F one_of_eight(const float* table,
                                                 typename VectorOf<W>::I index) {
#ifdef __AVX512F__
  if constexpr (W == 16) {
    return (typename VectorOf<W>::F)_mm512_maskz_permutexvar_ps(0xffff, (__m512i)(index & 7),
                                                                _mm512_loadu_ps(table));
  }
#endif
#ifdef __AVX2__
  if constexpr (W == 8) {
    return (typename VectorOf<W>::F)_mm256_permutevar8x32_ps(_mm256_loadu_ps(table),
                                                             (__m256i)index);
  }
#endif
  typename VectorOf<W>::F result;
  for (int k = 0; k < W; ++k) result[k] = table[index[k] & 7];
  return result;
}

SNUG_INLINE F to_float(I x) { return __builtin_convertvector(x, F); }
SNUG_INLINE I to_int(F x) { return __builtin_convertvector(x, I); }

// The value of each code, see core/kernels/dynamic_map.h.
template <bool kSigned>
SNUG_INLINE F decode(const DynamicMap& map, I codes) {
  const I offset = kSigned ? codes - 127 : codes + 1;
  const I k = offset < 0 ? -offset : offset;
  const U bits = (U)(to_float(k) + 0.5f);
  const F mantissa = (F)((bits & 0x7fffffu) | 0x3f800000u);
  F value = one_of_eight(map.decode_scale, (I)(bits >> 23) - 127) * (9.f * mantissa - 8.f);
  value = codes == 255 ? broadcast(1.f) : value;
  return kSigned ? (F)((U)value | ((U)offset & 0x80000000u)) : value;
}

// The nearest value's code for x in [-1, 1]; that of 0 for NaN.
template <bool kSigned>
SNUG_INLINE I encode(const DynamicMap& map, F x) {
  const F magnitude = x == x ? magnitude_of(x) : F{};
  const I above = (I)((U)magnitude >> 23) - (127 + kLowestExponent);
  I decade = (above < 0 ? I{} : above) * 11 >> 5;                // lowest_decade()
  decade -= (I)(magnitude > one_of_eight(map.borders, decade));  // a true comparison is -1
  const F position =
      magnitude * one_of_eight(map.encode_scale, decade) + one_of_eight(map.encode_offset, decade);
  const I one = I{} + 1, last = ((one * (kSigned ? 1 : 2)) << decade) - 1;
  I k = to_int(position);
  k = k > last ? last : k;
  k -= (I)(x > map.top);
  return kSigned ? 127 + (x < 0.f ? -k : k) : k - 1;
}

SNUG_INLINE I codes_at(const uint8_t* codes, int64_t i, Whole) { return read_codes(codes + i); }
SNUG_INLINE I codes_at(const uint8_t* codes, int64_t i, Part lanes) {
  uint8_t copy[kLanes] = {};
  for (int64_t k = 0; k < lanes.count; ++k) copy[k] = codes[i + k];
  return read_codes(copy);
}
SNUG_INLINE void put_codes(uint8_t* codes, int64_t i, I values, Whole) {
  write_codes(codes + i, values);
}
SNUG_INLINE void put_codes(uint8_t* codes, int64_t i, I values, Part lanes) {
  uint8_t copy[kLanes];
  write_codes(copy, values);
  for (int64_t k = 0; k < lanes.count; ++k) codes[i + k] = copy[k];
}

// A NaN is passed over: the block's other elements keep their scale.
SNUG_INLINE F larger_magnitude(F peak, F value) {
  const F magnitude = magnitude_of(value);
  return magnitude > peak ? magnitude : peak;
}

SNUG_INLINE float largest_lane(F peaks) {
  float lanes[kLanes];
  store_f(lanes, peaks);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k)
      lanes[k] = lanes[k + half] > lanes[k] ? lanes[k + half] : lanes[k];
  }
  return lanes[0];
}

// Writes the codes of `moments`, the block's elements from `begin`, and returns their scale.
template <bool kSigned>
SNUG_INLINE float encode_block(const DynamicMap& map, const float* moments, F peaks, uint8_t* codes,
                               int64_t begin, int64_t end) {
  const float absmax = largest_lane(peaks);
  const float inverse = 1.0f / (absmax > 1e-38f ? absmax : 1e-38f);
  sweep(begin, end, [&](int64_t i, auto lanes) {
    put_codes(codes, i, encode<kSigned>(map, load_f(moments + (i - begin)) * inverse), lanes);
  });
  return absmax;
}

template <class P, class G, bool kStochastic>
SNUG_INLINE void update_block(const AdamW8bitTensor& t, const AdamWFactors& f,
                              const DynamicMap& first_map, const DynamicMap& second_map,
                              int64_t begin, int64_t end) {
  alignas(64) float first[kQuantizedBlock];
  alignas(64) float second[kQuantizedBlock];
  const int64_t block = begin / kQuantizedBlock;
  const float first_scale = t.exp_avg_absmax[block], second_scale = t.exp_avg_sq_absmax[block];
  F first_peaks = {}, second_peaks = {};
  sweep(begin, end, [&](int64_t i, auto lanes) {
    const F g = read<G>(t.grad, i, lanes) * f.grad_scale;
    F m = decode<true>(first_map, codes_at(t.exp_avg, i, lanes)) * first_scale;
    F v = decode<false>(second_map, codes_at(t.exp_avg_sq, i, lanes)) * second_scale;
    F p = read_weight<P>(t, i, lanes);
    move_moments(m, v, g, f);
    p = adamw_weight(p, m, square_root(v), f);
    store_f(first + (i - begin), m);
    store_f(second + (i - begin), v);
    first_peaks = larger_magnitude(first_peaks, fill_beyond(m, F{}, lanes));
    second_peaks = larger_magnitude(second_peaks, fill_beyond(v, F{}, lanes));
    const U random = kStochastic ? random_bits(f.random_key, i) : U{};
    write_weight<P>(t, i, p, lanes, kStochastic, random);
  });
  t.exp_avg_absmax[block] =
      encode_block<true>(first_map, first, first_peaks, t.exp_avg, begin, end);
  t.exp_avg_sq_absmax[block] =
      encode_block<false>(second_map, second, second_peaks, t.exp_avg_sq, begin, end);
}

template <class P, class G, bool kStochastic>
void update(const AdamW8bitTensor& tensor, const AdamWFactors& factors, const DynamicMap& first_map,
            const DynamicMap& second_map, int64_t begin, int64_t end) {
  const auto t = tensor;
  const auto f = factors;
  for (int64_t i = begin; i < end; i += kQuantizedBlock) {
    const int64_t block_end = i + kQuantizedBlock < end ? i + kQuantizedBlock : end;
    update_block<P, G, kStochastic>(t, f, first_map, second_map, i, block_end);
  }
}

}  // namespace

namespace SNUG_ISA {

void adamw_8bit_range(const AdamW8bitTensor& tensor, const AdamWFactors& factors,
                      const DynamicMap& first_map, const DynamicMap& second_map, int64_t begin,
                      int64_t end) {
  with_type(tensor.param_type, [&](auto p) {
    with_type(tensor.grad_type, [&](auto g) {
      using P = decltype(p);
      using G = decltype(g);
      if (factors.stochastic) {
        update<P, G, true>(tensor, factors, first_map, second_map, begin, end);
      } else {
        update<P, G, false>(tensor, factors, first_map, second_map, begin, end);
      }
    });
  });
}

}  // namespace SNUG_ISA
}  // namespace snug::kernels::cpu
