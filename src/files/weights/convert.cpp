// SPDX-License-Identifier: Apache-2.0
#include "files/weights/convert.h"

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace snug::files {
namespace {

template <class T>
[[gnu::always_inline]] inline T load(const void* in, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(in) + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <class T>
[[gnu::always_inline]] inline void store(void* out, int64_t index, T value) {
  std::memcpy(static_cast<std::byte*>(out) + index * static_cast<int64_t>(sizeof(T)), &value,
              sizeof(T));
}

template <class T>
void cast_to_f32(const void* in, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) store(out, i, static_cast<float>(load<T>(in, i)));
}

// The OCP 8-bit floating point specification (2023): E4M3 has no infinities, and NaN where all bits
// but the sign are 1; E5M2 is as IEEE's formats, the upper half of a float16.
float e4m3_to_float(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const float sign = bits & 0x80 ? -1.f : 1.f;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -9);
  return sign * std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
}

float e5m2_to_float(uint8_t bits) { return half_to_float(static_cast<uint16_t>(bits << 8)); }

// Microscaling Formats 1.0: 2^(bits - 127), and NaN.
float e8m0_to_float(uint8_t bits) {
  return bits == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.f, bits - 127);
}

template <float (*Value)(uint8_t)>
void f8_to_f32(const void* in, float* out, int64_t count) {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values;
    for (size_t bits = 0; bits < values.size(); ++bits)
      values[bits] = Value(static_cast<uint8_t>(bits));
    return values;
  }();
  for (int64_t i = 0; i < count; ++i) store(out, i, kValues[load<uint8_t>(in, i)]);
}

void bool_to_f32(const void* in, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) store(out, i, load<uint8_t>(in, i) != 0 ? 1.0f : 0.0f);
}

const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
// The builtin above knows this name in some compilers only.
const bool kHasF16C = [] {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return kHasAvx2 && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}();

// Both convert whole groups of eight and return the number of elements converted.
[[gnu::target("avx2,f16c")]] int64_t f16_to_f32_by_eight(const void* in, void* out, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const auto* from = static_cast<const uint8_t*>(in) + i * 2;
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    _mm256_storeu_ps(static_cast<float*>(out) + i, _mm256_cvtph_ps(halves));
  }
  return i;
}

[[gnu::target("avx2,f16c")]] int64_t f32_to_f16_by_eight(const void* in, void* out, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256i bits = _mm256_loadu_si256(
        reinterpret_cast<const __m256i_u*>(static_cast<const uint8_t*>(in) + i * 4));
    const __m128i halves = _mm256_cvtps_ph(_mm256_castsi256_ps(bits), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(static_cast<uint8_t*>(out) + i * 2), halves);
  }
  return i;
}

// float_to_bfloat of eight.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i eight_to_bf16(const uint8_t* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i to_even =
      _mm256_add_epi32(_mm256_and_si256(upper, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7FFF));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, to_even), 16);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), is_nan);
}

// Converts whole groups of sixteen and returns the number of elements converted.
[[gnu::target("avx2")]] int64_t f32_to_bf16_by_sixteen(const void* in, void* out, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const auto* from = static_cast<const uint8_t*>(in) + i * 4;
    const __m256i packed = _mm256_packus_epi32(eight_to_bf16(from), eight_to_bf16(from + 32));
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(static_cast<uint8_t*>(out) + i * 2),
                        _mm256_permute4x64_epi64(packed, 0b11'01'10'00));
  }
  return i;
}

void from_f32(const void* in, DType to, void* out, int64_t count) {
  switch (to) {
    case DType::F32:
      std::memcpy(out, in, static_cast<size_t>(count) * 4);
      return;
    case DType::BF16:
      return f32_to_bf16(in, out, count);
    case DType::F16:
      return f32_to_f16(in, out, count);
    default:
      return quantize(to, static_cast<const float*>(in), out, count);
  }
}

}  // namespace

void f32_to_bf16(const void* in, void* out, int64_t count) {
  int64_t i = kHasAvx2 ? f32_to_bf16_by_sixteen(in, out, count) : 0;
  for (; i < count; ++i) store(out, i, float_to_bfloat(load<float>(in, i)));
}

void bf16_to_f32(const void* in, void* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) store(out, i, bfloat_to_float(load<uint16_t>(in, i)));
}

void f16_to_f32(const void* in, void* out, int64_t count) {
  int64_t i = kHasF16C ? f16_to_f32_by_eight(in, out, count) : 0;
  for (; i < count; ++i) store(out, i, half_to_float(load<uint16_t>(in, i)));
}

void f32_to_f16(const void* in, void* out, int64_t count) {
  int64_t i = kHasF16C ? f32_to_f16_by_eight(in, out, count) : 0;
  for (; i < count; ++i) store(out, i, float_to_half(load<float>(in, i)));
}

void to_f32(DType from, const void* in, float* out, int64_t count) {
  switch (from) {
    case DType::F32:
      std::memcpy(out, in, static_cast<size_t>(count) * 4);
      return;
    case DType::F64:
      return cast_to_f32<double>(in, out, count);
    case DType::F16:
      return f16_to_f32(in, out, count);
    case DType::BF16:
      return bf16_to_f32(in, out, count);
    case DType::I64:
      return cast_to_f32<int64_t>(in, out, count);
    case DType::I32:
      return cast_to_f32<int32_t>(in, out, count);
    case DType::I16:
      return cast_to_f32<int16_t>(in, out, count);
    case DType::I8:
      return cast_to_f32<int8_t>(in, out, count);
    case DType::U8:
      return cast_to_f32<uint8_t>(in, out, count);
    case DType::Bool:
      return bool_to_f32(in, out, count);
    case DType::F8E4M3:
      return f8_to_f32<e4m3_to_float>(in, out, count);
    case DType::F8E5M2:
      return f8_to_f32<e5m2_to_float>(in, out, count);
    case DType::F8E8M0:
      return f8_to_f32<e8m0_to_float>(in, out, count);
    default:
      return dequantize(from, in, out, count);
  }
}

bool can_convert(DType from, DType to) {
  return from == to || to == DType::F32 || to == DType::F16 || to == DType::BF16 ||
         can_quantize(to);
}

void convert(DType from, const void* in, DType to, void* out, int64_t count) {
  SNUG_CHECK(can_convert(from, to), "no conversion from {} to {}", name(from), name(to));
  if (from == to) {
    if (count > 0) std::memcpy(out, in, static_cast<size_t>(bytes_for(from, count)));
    return;
  }
  if (to == DType::F32) return to_f32(from, in, static_cast<float*>(out), count);
  if (from == DType::F32) return from_f32(in, to, out, count);
  // A chunk that stays in the L1 cache, and a multiple of every block size.
  constexpr int64_t kStretch = 4096;
  alignas(64) std::array<float, kStretch> buffer;
  for (int64_t done = 0; done < count; done += kStretch) {
    const int64_t part = std::min(kStretch, count - done);
    const auto* source = static_cast<const std::byte*>(in) + bytes_for(from, done);
    to_f32(from, source, buffer.data(), part);
    from_f32(buffer.data(), to, static_cast<std::byte*>(out) + bytes_for(to, done), part);
  }
}

}  // namespace snug::files
