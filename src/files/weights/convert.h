// Bulk conversion between number types. Several GB/s per core: uses AVX2 and F16C if the machine
// has them, with the same bits as plain C++. Inputs need no alignment.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "files/weights/dtype.h"

namespace snug::files {

// Round to nearest even; NaN stays NaN, overflow becomes infinity.
void f32_to_bf16(const void* in, void* out, int64_t count);
void f32_to_f16(const void* in, void* out, int64_t count);
void bf16_to_f32(const void* in, void* out, int64_t count);
void f16_to_f32(const void* in, void* out, int64_t count);

// Any type to float32. `count` is a whole number of blocks for a quantized type.
void to_f32(DType from, const void* in, float* out, int64_t count);

// Dequantizes whole blocks, with the same bits as ggml's reference code.
void dequantize(DType type, const void* in, float* out, int64_t count);

// The other way, with the same bytes as ggml's reference code. Throws UserError, without a subject,
// for values that are not finite. With an importance of each element (not negative; null: none),
// `in` is one row of a matrix.
void quantize(DType type, const float* in, void* out, int64_t count,
              const float* importance = nullptr);
bool can_quantize(DType type);  // Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K

// Whether convert() supports the pair: any type to F32, F16, BF16 or one that can be quantized to,
// or from == to.
bool can_convert(DType from, DType to);
// F64 and integers are converted to smaller types by way of float32, as in PyTorch.
void convert(DType from, const void* in, DType to, void* out, int64_t count);

// float16 and bfloat16 in plain C++, bit for bit what the F16C instructions give (NaN made quiet).
[[gnu::always_inline]] inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7FFF;
  // A subnormal half is its integer value times 2^-24, which a float holds exactly.
  const auto subnormal = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  const uint32_t normal = (magnitude << 13) + ((127 - 15) << 23);
  const uint32_t special = (magnitude << 13) | 0x7F800000 | (magnitude > 0x7C00 ? 0x400000 : 0);
  const uint32_t bits = magnitude < 0x0400 ? subnormal : magnitude >= 0x7C00 ? special : normal;
  return std::bit_cast<float>(sign | bits);
}

[[gnu::always_inline]] inline uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  // Below 2^-14: adding 0.5 makes the float unit round to a multiple of 2^-24 for us.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  const uint32_t normal = (magnitude - ((127 - 15) << 23) + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  const uint32_t special =
      magnitude > 0x7F800000 ? 0x7E00 | ((magnitude >> 13) & 0x3FF) : uint32_t{0x7C00};
  const uint32_t half = magnitude < 0x38800000    ? subnormal
                        : magnitude >= 0x47800000 ? special
                                                  : normal;
  return static_cast<uint16_t>(sign | half);
}

[[gnu::always_inline]] inline uint16_t float_to_bfloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

[[gnu::always_inline]] inline float bfloat_to_float(uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16);
}

}  // namespace snug::files
