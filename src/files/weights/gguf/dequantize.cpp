// ggml's block formats, one struct each: how a block lies in memory and how it becomes float32.
// The order of the float operations is ggml's, so that the bits agree with every other reader.
// Each decoder is compiled twice, for any x86-64 and for AVX2; both give the same bits. A loop of
// 16 must not be unrolled before it is vectorised, or GCC leaves it scalar: up to ten times slower.
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstring>

#include "base/error.h"
#include "files/weights/convert.h"

namespace snug::files {
namespace {

[[gnu::always_inline]] inline float half_at(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return half_to_float(bits);
}

[[gnu::always_inline]] inline uint32_t u32_at(const uint8_t* at) {
  uint32_t bits;
  std::memcpy(&bits, at, 4);
  return bits;
}

// scale, 16 bytes: low nibbles are elements 0…15, high nibbles 16…31.
struct Q4_0 {
  static constexpr int64_t kElements = 32, kBytes = 18;
  [[gnu::always_inline]] static void decode(const uint8_t* in, float* out) {
    const float scale = half_at(in);
    const uint8_t* packed = in + 2;
    for (int i = 0; i < 16; ++i) {
      out[i] = scale * static_cast<float>((packed[i] & 15) - 8);
      out[i + 16] = scale * static_cast<float>((packed[i] >> 4) - 8);
    }
  }
};

// scale, minimum, 16 bytes as in Q4_0.
struct Q4_1 {
  static constexpr int64_t kElements = 32, kBytes = 20;
  [[gnu::always_inline]] static void decode(const uint8_t* in, float* out) {
    const float scale = half_at(in), minimum = half_at(in + 2);
    const uint8_t* packed = in + 4;
    for (int i = 0; i < 16; ++i) {
      out[i] = scale * static_cast<float>(packed[i] & 15) + minimum;
      out[i + 16] = scale * static_cast<float>(packed[i] >> 4) + minimum;
    }
  }
};

// Bit i of `high` is the fifth bit of element i.
[[gnu::always_inline]] inline void unpack_five_bits(uint32_t high, const uint8_t* packed,
                                                    int32_t* values) {
#pragma GCC unroll 1
  for (uint32_t i = 0; i < 16; ++i) {
    values[i] = static_cast<int32_t>((packed[i] & 15u) | ((high >> i) & 1u) << 4);
    values[i + 16] = static_cast<int32_t>((packed[i] >> 4) | ((high >> (i + 16)) & 1u) << 4);
  }
}

// scale, fifth bits, 16 bytes.
struct Q5_0 {
  static constexpr int64_t kElements = 32, kBytes = 22;
  [[gnu::always_inline]] static void decode(const uint8_t* in, float* out) {
    const float scale = half_at(in);
    int32_t values[32];
    unpack_five_bits(u32_at(in + 2), in + 6, values);
    for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(values[i] - 16);
  }
};

// scale, minimum, fifth bits, 16 bytes.
struct Q5_1 {
  static constexpr int64_t kElements = 32, kBytes = 24;
  [[gnu::always_inline]] static void decode(const uint8_t* in, float* out) {
    const float scale = half_at(in), minimum = half_at(in + 2);
    int32_t values[32];
    unpack_five_bits(u32_at(in + 4), in + 8, values);
    for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(values[i]) + minimum;
  }
};

// scale, 32 signed bytes.
struct Q8_0 {
  static constexpr int64_t kElements = 32, kBytes = 34;
  [[gnu::always_inline]] static void decode(const uint8_t* in, float* out) {
    const float scale = half_at(in);
    for (int i = 0; i < 32; ++i)
      out[i] = scale * static_cast<float>(static_cast<int8_t>(in[2 + i]));
  }
};

// exponent, 16 bytes as in Q4_0; the codes of packed/scaled.cpp, doubled here and their scale
// halved.
struct Mxfp4 {
  static constexpr int64_t kElements = 32, kBytes = 17;
  static constexpr int8_t kCodes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  [[gnu::always_inline]] static void decode(const uint8_t* in, float* out) {
    const uint32_t exponent = in[0];
    const float scale =
        std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
    const uint8_t* packed = in + 1;
    for (int i = 0; i < 16; ++i) {
      out[i] = scale * static_cast<float>(kCodes[packed[i] & 15]);
      out[i + 16] = scale * static_cast<float>(kCodes[packed[i] >> 4]);
    }
  }
};

// The K formats: 256 elements in groups of 16 or 32, each group with its own small scale.

// 16 bytes of (scale, minimum) nibbles, 64 bytes of two-bit values, scale, minimum.
struct Q2_K {
  static constexpr int64_t kElements = 256, kBytes = 84;
  [[gnu::always_inline]] static void decode(const uint8_t* in, float* out) {
    const float scale = half_at(in + 80), minimum = half_at(in + 82);
    for (int group = 0; group < 16; ++group, out += 16) {
      const float step = scale * static_cast<float>(in[group] & 15);
      const float floor = minimum * static_cast<float>(in[group] >> 4);
      const uint8_t* packed = in + 16 + group / 8 * 32 + group % 2 * 16;
      const int shift = group / 2 % 4 * 2;
#pragma GCC unroll 1
      for (int i = 0; i < 16; ++i)
        out[i] = step * static_cast<float>((packed[i] >> shift) & 3) - floor;
    }
  }
};

// 32 bytes of third bits, 64 bytes of two-bit values, 12 bytes of six-bit scales, scale.
struct Q3_K {
  static constexpr int64_t kElements = 256, kBytes = 110;
  [[gnu::always_inline]] static void decode(const uint8_t* in, float* out) {
    const uint8_t* scales = in + 96;
    const float scale = half_at(in + 108);
    for (int group = 0; group < 16; ++group, out += 16) {
      const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
      const int high = (scales[8 + group % 4] >> (group / 4 * 2)) & 3;
      const float step = scale * static_cast<float>((low | high << 4) - 32);
      const uint8_t* third = in + group % 2 * 16;
      const uint8_t* packed = in + 32 + group / 8 * 32 + group % 2 * 16;
      const int shift = group / 2 % 4 * 2, bit = group / 2;
      // The third bit is stored inverted: where it is 0, four is taken away.
#pragma GCC unroll 1
      for (int i = 0; i < 16; ++i) {
        const int value = ((packed[i] >> shift) & 3) - (~(third[i] >> bit) & 1) * 4;
        out[i] = step * static_cast<float>(value);
      }
    }
  }
};

// Q4_K and Q5_K pack eight six-bit scales and eight six-bit minima into 12 bytes.
struct ScaleAndMinimum {
  int scale, minimum;
};
[[gnu::always_inline]] inline ScaleAndMinimum scale_and_minimum(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | ((packed[group - 4] >> 6) << 4),
          (packed[group + 4] >> 4) | ((packed[group] >> 6) << 4)};
}

// scale, minimum, 12 bytes of group scales, 128 bytes of nibbles.
struct Q4_K {
  static constexpr int64_t kElements = 256, kBytes = 144;
  [[gnu::always_inline]] static void decode(const uint8_t* in, float* out) {
    const float scale = half_at(in), minimum = half_at(in + 2);
    for (int group = 0; group < 8; ++group, out += 32) {
      const ScaleAndMinimum own = scale_and_minimum(in + 4, group);
      const float step = scale * static_cast<float>(own.scale);
      const float floor = minimum * static_cast<float>(own.minimum);
      const uint8_t* packed = in + 16 + group / 2 * 32;
      const int shift = group % 2 * 4;
      for (int i = 0; i < 32; ++i)
        out[i] = step * static_cast<float>((packed[i] >> shift) & 15) - floor;
    }
  }
};

// As Q4_K, with 32 bytes of fifth bits before the nibbles.
struct Q5_K {
  static constexpr int64_t kElements = 256, kBytes = 176;
  [[gnu::always_inline]] static void decode(const uint8_t* in, float* out) {
    const float scale = half_at(in), minimum = half_at(in + 2);
    const uint8_t* fifth = in + 16;
    for (int group = 0; group < 8; ++group, out += 32) {
      const ScaleAndMinimum own = scale_and_minimum(in + 4, group);
      const float step = scale * static_cast<float>(own.scale);
      const float floor = minimum * static_cast<float>(own.minimum);
      const uint8_t* packed = in + 48 + group / 2 * 32;
      const int shift = group % 2 * 4;
      for (int i = 0; i < 32; ++i) {
        const int value = ((packed[i] >> shift) & 15) | ((fifth[i] >> group) & 1) << 4;
        out[i] = step * static_cast<float>(value) - floor;
      }
    }
  }
};

// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed group scales, scale.
struct Q6_K {
  static constexpr int64_t kElements = 256, kBytes = 210;
  [[gnu::always_inline]] static void decode(const uint8_t* in, float* out) {
    const float scale = half_at(in + 208);
    for (int group = 0; group < 16; ++group, out += 16) {
      const int pair = group / 2 % 4;  // which 32 of its 128 elements
      const uint8_t* low = in + group / 8 * 64 + pair % 2 * 32 + group % 2 * 16;
      const uint8_t* high = in + 128 + group / 8 * 32 + group % 2 * 16;
      const float step = scale * static_cast<float>(static_cast<int8_t>(in[192 + group]));
      const int low_shift = pair / 2 * 4, high_shift = pair * 2;
#pragma GCC unroll 1
      for (int i = 0; i < 16; ++i) {
        const int value = ((low[i] >> low_shift) & 15) | ((high[i] >> high_shift) & 3) << 4;
        out[i] = step * static_cast<float>(value - 32);
      }
    }
  }
};

template <class Block>
[[gnu::always_inline]] inline void decode_all(const uint8_t* in, float* out, int64_t count) {
  for (int64_t i = 0; i < count; i += Block::kElements, in += Block::kBytes)
    Block::decode(in, out + i);
}

template <class Block>
[[gnu::target("avx2")]] void decode_avx2(const uint8_t* in, float* out, int64_t count) {
  decode_all<Block>(in, out, count);
}

template <class Block>
void decode(const void* in, float* out, int64_t count) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  const auto* bytes = static_cast<const uint8_t*>(in);
  if (has_avx2)
    decode_avx2<Block>(bytes, out, count);
  else
    decode_all<Block>(bytes, out, count);
}

}  // namespace

void dequantize(DType type, const void* in, float* out, int64_t count) {
  SNUG_CHECK(count % layout(type).block_elements == 0,
             "{} elements are no whole number of {} blocks", count, name(type));
  switch (type) {
    case DType::Q4_0:
      return decode<Q4_0>(in, out, count);
    case DType::Q4_1:
      return decode<Q4_1>(in, out, count);
    case DType::Q5_0:
      return decode<Q5_0>(in, out, count);
    case DType::Q5_1:
      return decode<Q5_1>(in, out, count);
    case DType::Q8_0:
      return decode<Q8_0>(in, out, count);
    case DType::Q2_K:
      return decode<Q2_K>(in, out, count);
    case DType::Q3_K:
      return decode<Q3_K>(in, out, count);
    case DType::Q4_K:
      return decode<Q4_K>(in, out, count);
    case DType::Q5_K:
      return decode<Q5_K>(in, out, count);
    case DType::Q6_K:
      return decode<Q6_K>(in, out, count);
    case DType::MXFP4:
      return decode<Mxfp4>(in, out, count);
    default:
      throw InternalError(fmt::format("{} is not a quantized type", name(type)));
  }
}

}  // namespace snug::files
