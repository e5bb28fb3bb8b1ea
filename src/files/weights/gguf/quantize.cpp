// ggml's block formats again, from float32 to blocks: the layouts are those of dequantize.cpp. What
// a block's scales should be is a search, and this one is that of ggml's reference quantizers: the
// same candidates, and the same float operations in the same order, so that the bytes agree.
// The sums of the search must stay in order, which leaves nothing to vectorise within a group: so
// the eight groups of a block (Q6_K: eight of its 16; blocks of 32: eight of them) are computed
// side by side, one in each lane. Compiled twice, for any x86-64 and for AVX2; both give the same
// bytes. With an importance for each column of a row, its errors count as much: again as ggml does
// it.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "files/weights/convert.h"
#include "files/weights/gguf/search.h"

namespace snug::files {
namespace {

using namespace blocks;  // NOLINT(google-build-using-namespace): written for this file

[[gnu::always_inline]] inline float put_half(uint8_t* at, float value) {
  const uint16_t bits = float_to_half(value);
  std::memcpy(at, &bits, 2);
  return half_to_float(bits);
}

// 0 where there is no inverse.
[[gnu::always_inline]] inline float inverse_of(float scale) {
  const float inverse = 1.0f / scale;
  return std::abs(inverse) <= 0x1.fffffep127f ? inverse : 0.0f;
}

// The first of the largest magnitudes, with its sign.
[[gnu::always_inline]] inline float largest_of(const float* in, int count) {
  float magnitude = 0, largest = 0;
  for (int i = 0; i < count; ++i) {
    if (std::abs(in[i]) <= magnitude) continue;
    magnitude = std::abs(in[i]);
    largest = in[i];
  }
  return largest;
}

// The codes of 32 elements, of four bits or of five, where the fifth bits come first.
template <int kBits, class Code>
[[gnu::always_inline]] inline void pack(const Code& code, uint8_t* out) {
  uint8_t* packed = kBits == 5 ? out + 4 : out;
  uint32_t fifth = 0;
  for (int i = 0; i < 16; ++i) {
    const auto low = static_cast<uint32_t>(code(i)), other = static_cast<uint32_t>(code(i + 16));
    packed[i] = static_cast<uint8_t>((low & 15) | (other & 15) << 4);
    fifth |= (low >> 4) << i | (other >> 4) << (i + 16);
  }
  if constexpr (kBits == 5) std::memcpy(out, &fifth, 4);
}

[[gnu::always_inline]] inline float sum_of_squares(const float* in, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += in[i] * in[i];
  return sum;
}

// The larger a value beside its neighbours', the more an error matters.
[[gnu::always_inline]] inline void weigh_by_importance(const Lanes* x, const float* importance,
                                                       float mean_square, Lanes* weights) {
  load_groups<kUnsigned>(importance, weights);
  for (int i = 0; i < kUnsigned; ++i) {
    Lanes root = mean_square + x[i] * x[i];
    for (int g = 0; g < kLanes; ++g) root[g] = std::sqrt(root[g]);
    weights[i] *= root;
  }
}
constexpr Steps kWeightedSteps = {.first = -0.9f, .width = 0.05f, .last = 36};

// A scale and codes around zero: largest value to -kHalf.
template <int kBits>
struct Signed {
  static constexpr int kHalf = 1 << (kBits - 1);
  static constexpr int64_t kElements = 32, kBytes = 2 + 4 * kBits;
  [[gnu::always_inline]] static void encode(const float* in, uint8_t* out) {
    const float scale = largest_of(in, 32) / -kHalf, inverse = inverse_of(scale);
    put_half(out, scale);
    const auto code = [&](int i) {
      return std::min(static_cast<int>(in[i] * inverse + (kHalf + 0.5f)), 2 * kHalf - 1);
    };
    pack<kBits>(code, out + 2);
  }
  [[gnu::always_inline]] static void encode_eight(const Lanes* x, const Lanes* weights,
                                                  uint8_t* out) {
    Lanes scales{};
    Ints codes[kUnsigned];
    search_scale<kUnsigned, kHalf>(x, weights, scales, codes);
    for (int g = 0; g < kLanes; ++g, out += kBytes) {
      put_half(out, scales[g]);
      pack<kBits>([&](int i) { return codes[i][g]; }, out + 2);
    }
  }
};
using ToQ4_0 = Signed<4>;
using ToQ5_0 = Signed<5>;

// A scale and a minimum.
template <int kBits>
struct Unsigned {
  static constexpr int kMost = (1 << kBits) - 1;
  static constexpr int64_t kElements = 32, kBytes = 4 + 4 * kBits;
  [[gnu::always_inline]] static void encode(const float* in, uint8_t* out) {
    const float minimum = *std::min_element(in, in + 32), maximum = *std::max_element(in, in + 32);
    const float scale = (maximum - minimum) / kMost, inverse = inverse_of(scale);
    put_half(out, scale);
    put_half(out + 2, minimum);
    const auto code = [&](int i) {
      // Never below zero. NOLINTNEXTLINE(bugprone-incorrect-roundings)
      return std::min(static_cast<int>((in[i] - minimum) * inverse + 0.5f), kMost);
    };
    pack<kBits>(code, out + 4);
  }
  [[gnu::always_inline]] static void encode_eight(const Lanes* x, const Lanes* weights,
                                                  uint8_t* out) {
    Lanes scales, floors, sums;
    Ints codes[kUnsigned];
    search_scale_and_floor<kMost>(x, weights, kWeightedSteps, scales, floors, sums, codes);
    for (int g = 0; g < kLanes; ++g, out += kBytes) {
      put_half(out, scales[g]);
      put_half(out + 2, -floors[g]);
      pack<kBits>([&](int i) { return codes[i][g]; }, out + 4);
    }
  }
};
using ToQ4_1 = Unsigned<4>;
using ToQ5_1 = Unsigned<5>;

struct ToQ8_0 {
  static constexpr int64_t kElements = 32, kBytes = 34;
  [[gnu::always_inline]] static void encode(const float* in, uint8_t* out) {
    float magnitude = 0;
    for (int i = 0; i < 32; ++i) magnitude = std::max(magnitude, std::abs(in[i]));
    const float scale = magnitude / 127.0f, inverse = inverse_of(scale);
    put_half(out, scale);
    for (int i = 0; i < 32; ++i) {
      const float value = in[i] * inverse;
      const int whole = static_cast<int>(value);
      const float rest = value - static_cast<float>(whole);
      // Halves away from zero.
      out[2 + i] = static_cast<uint8_t>(whole + (rest >= 0.5f) - (rest <= -0.5f));
    }
  }
};

// Q6_K: groups of 16 with a scale and codes from -32 to 31. An importance is a weight as it is.
constexpr int kSigned = 16;

struct ToQ6_K {
  static constexpr int64_t kElements = 256, kBytes = 210;
  [[gnu::always_inline]] static void encode(const float* in, const float* importance,
                                            uint8_t* out) {
    Lanes x[2][kSigned], weights[kSigned], found[2];
    Ints codes[2][kSigned];
    for (int64_t half = 0; half < 2; ++half) {
      load_groups<kSigned>(in + half * 128, x[half]);
      if (importance != nullptr)
        load_groups<kSigned>(importance + half * 128, weights);
      else
        for (int i = 0; i < kSigned; ++i) weights[i] = x[half][i] * x[half][i];
      found[half] = Lanes{};
      search_scale<kSigned, 32>(x[half], weights, found[half], codes[half]);
    }
    float scales[16];
    std::memcpy(scales, found, sizeof(scales));
    const float largest = largest_of(scales, 16);
    std::memset(out, 0, kBytes);
    if (std::abs(largest) < kNothing) return;
    const float inverse = -128.0f / largest;
    const float step = put_half(out + 208, 1 / inverse);
    for (int64_t half = 0; half < 2; ++half) {
      Lanes own;
      for (int g = 0; g < kLanes; ++g) {
        const int scale = std::min(127, round_one(inverse * scales[half * 8 + g]));
        out[192 + half * 8 + g] = static_cast<uint8_t>(scale);
        own[g] = step * static_cast<float>(static_cast<int8_t>(scale));
      }
      for (int i = 0; i < kSigned; ++i) {
        Ints code;
        round_lanes(x[half][i] / own, code);
        clamp_lanes(code, -32, 31);
        codes[half][i] = own != 0.0f ? code + 32 : codes[half][i];
      }
      pack_half(codes[half], out + half * 64, out + 128 + half * 32);
    }
  }

  // Half a block: 64 bytes of low nibbles, 32 of high bit pairs.
  [[gnu::always_inline]] static void pack_half(const Ints* codes, uint8_t* low, uint8_t* high) {
    for (int g = 0; g < kLanes; ++g) {
      const int pair = g / 2;
      for (int i = 0; i < kSigned; ++i) {
        const int code = codes[i][g], at = g % 2 * 16 + i;
        low[pair % 2 * 32 + at] |= static_cast<uint8_t>((code & 15) << (pair / 2 * 4));
        high[at] |= static_cast<uint8_t>((code >> 4) << (pair * 2));
      }
    }
  }
};

// Q4_K and Q5_K: groups of 32 with a scale, a minimum and codes from 0 to kMost.
template <int kMost>
constexpr Steps kPlainSteps = {.first = -1.0f, .width = 0.1f, .last = 20};
template <>
constexpr Steps kPlainSteps<31> = {.first = -0.5f, .width = 0.1f, .last = 15};

// Without an importance larger values weigh more.
[[gnu::always_inline]] inline void weigh_by_magnitude(const Lanes* x, Lanes* weights) {
  Lanes sum_of_squares{};
  for (int i = 0; i < kUnsigned; ++i) sum_of_squares += x[i] * x[i];
  Lanes mean = sum_of_squares / 32.0f;
  for (int g = 0; g < kLanes; ++g) mean[g] = std::sqrt(mean[g]);
  for (int i = 0; i < kUnsigned; ++i) {
    magnitude_of(x[i], weights[i]);
    weights[i] += mean;
  }
}

// scale, minimum, 12 bytes of group scales and minima. Returns the codes by group and element.
template <int kMost>
[[gnu::always_inline]] inline void encode_unsigned(const float* in, const float* importance,
                                                   uint8_t* out, Ints* codes) {
  Lanes x[kUnsigned], weights[kUnsigned], scales, floors, sums;
  load_groups<kUnsigned>(in, x);
  if (importance == nullptr)
    weigh_by_magnitude(x, weights);
  else
    weigh_by_importance(x, importance, 2 * sum_of_squares(in, 256) / 256, weights);
  search_scale_and_floor<kMost>(x, weights,
                                importance == nullptr ? kPlainSteps<kMost> : kWeightedSteps, scales,
                                floors, sums, codes);
  const auto as_six_bits = [&](const Lanes& values) __attribute__((always_inline)) {
    return importance == nullptr ? six_bits_of(values) : weighted_six_bits(values, sums);
  };
  const SixBits own = as_six_bits(scales), own_floors = as_six_bits(floors);
  const float scale = put_half(out, own.step), floor = put_half(out + 2, own_floors.step);
  uint8_t* packed = out + 4;
  std::memset(packed, 0, 12);
  for (int g = 0; g < kLanes; ++g) {
    // Where hardly a weight is above zero a scale may be negative, and its code wraps around: ggml
    // limits it in Q5_K, and lets it run into the other bits in Q4_K.
    constexpr uint8_t kLargest = kMost == 31 ? 63 : 255;
    const uint8_t code = std::min(own.codes[g], kLargest);
    const uint8_t floor_code = std::min(own_floors.codes[g], kLargest);
    if (g < 4) {
      packed[g] |= code;
      packed[g + 4] |= floor_code;
    } else {
      packed[g + 4] = static_cast<uint8_t>((code & 15) | (floor_code & 15) << 4);
      packed[g - 4] |= static_cast<uint8_t>((code >> 4) << 6);
      packed[g] |= static_cast<uint8_t>((floor_code >> 4) << 6);
    }
  }
  Lanes step, begin;
  for (int g = 0; g < kLanes; ++g) {
    const int code = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
    const int floor_code = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
    step[g] = scale * static_cast<float>(code);
    begin[g] = floor * static_cast<float>(floor_code);
  }
  for (int i = 0; i < kUnsigned; ++i) {
    Ints code;
    round_lanes((x[i] + begin) / step, code);
    clamp_lanes(code, 0, kMost);
    codes[i] = step != 0.0f ? code : codes[i];
  }
}

// 128 bytes: groups 0 and 1 share the first 32, and so on.
[[gnu::always_inline]] inline void pack_nibbles(const Ints* codes, uint8_t* out) {
  for (int pair = 0; pair < 4; ++pair, out += 32)
    for (int i = 0; i < kUnsigned; ++i)
      out[i] = static_cast<uint8_t>((codes[i][2 * pair] & 15) | (codes[i][2 * pair + 1] & 15) << 4);
}

struct ToQ4_K {
  static constexpr int64_t kElements = 256, kBytes = 144;
  [[gnu::always_inline]] static void encode(const float* in, const float* importance,
                                            uint8_t* out) {
    Ints codes[kUnsigned];
    encode_unsigned<15>(in, importance, out, codes);
    pack_nibbles(codes, out + 16);
  }
};

struct ToQ5_K {
  static constexpr int64_t kElements = 256, kBytes = 176;
  [[gnu::always_inline]] static void encode(const float* in, const float* importance,
                                            uint8_t* out) {
    Ints codes[kUnsigned];
    encode_unsigned<31>(in, importance, out, codes);
    for (int i = 0; i < kUnsigned; ++i) {
      int fifth = 0;
      for (int g = 0; g < kLanes; ++g) fifth |= codes[i][g] >> 4 << g;
      out[16 + i] = static_cast<uint8_t>(fifth);
    }
    pack_nibbles(codes, out + 48);
  }
};

// A row of small blocks, eight at a time, the last of them beside zeros.
template <class Block>
[[gnu::always_inline]] inline void encode_row(const float* in, const float* importance,
                                              uint8_t* out, int64_t count) {
  constexpr int64_t kStretch = kLanes * Block::kElements;
  const float mean_square = sum_of_squares(in, count) / static_cast<float>(count);
  for (int64_t i = 0; i < count; i += kStretch) {
    const int64_t part = std::min(kStretch, count - i);
    std::array<float, kStretch> values{}, own{};
    std::copy_n(in + i, part, values.data());
    std::copy_n(importance + i, part, own.data());
    Lanes x[kUnsigned], weights[kUnsigned];
    load_groups<kUnsigned>(values.data(), x);
    weigh_by_importance(x, own.data(), mean_square, weights);
    std::array<uint8_t, kLanes * Block::kBytes> encoded;
    Block::encode_eight(x, weights, encoded.data());
    out = std::copy_n(encoded.data(), part / Block::kElements * Block::kBytes, out);
  }
}

template <class Block>
[[gnu::always_inline]] inline void encode_all(const float* in, const float* importance,
                                              uint8_t* out, int64_t count) {
  if constexpr (requires { Block::encode_eight; })
    if (importance != nullptr) return encode_row<Block>(in, importance, out, count);
  for (int64_t i = 0; i < count; i += Block::kElements, out += Block::kBytes) {
    if constexpr (Block::kElements == 256)
      Block::encode(in + i, importance == nullptr ? nullptr : importance + i, out);
    else
      Block::encode(in + i, out);
  }
}

template <class Block>
[[gnu::target("avx2")]] void encode_avx2(const float* in, const float* importance, uint8_t* out,
                                         int64_t count) {
  encode_all<Block>(in, importance, out, count);
}

// With an importance (null: none) of one row.
template <class Block>
void encode(const float* in, const float* importance, void* out, int64_t count) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  auto* bytes = static_cast<uint8_t*>(out);
  if (has_avx2)
    encode_avx2<Block>(in, importance, bytes, count);
  else
    encode_all<Block>(in, importance, bytes, count);
}

struct Encoder {
  DType type;
  void (*encode)(const float* in, const float* importance, void* out, int64_t count);
};
constexpr std::array<Encoder, 8> kEncoders = {{{DType::Q4_0, encode<ToQ4_0>},
                                               {DType::Q4_1, encode<ToQ4_1>},
                                               {DType::Q5_0, encode<ToQ5_0>},
                                               {DType::Q5_1, encode<ToQ5_1>},
                                               {DType::Q8_0, encode<ToQ8_0>},
                                               {DType::Q4_K, encode<ToQ4_K>},
                                               {DType::Q5_K, encode<ToQ5_K>},
                                               {DType::Q6_K, encode<ToQ6_K>}}};

const Encoder* find_encoder(DType type) {
  const auto* found = std::ranges::find(kEncoders, type, &Encoder::type);
  return found == kEncoders.end() ? nullptr : found;
}

}  // namespace

bool can_quantize(DType type) { return find_encoder(type) != nullptr; }

void quantize(DType type, const float* in, void* out, int64_t count, const float* importance) {
  const Encoder* encoder = find_encoder(type);
  SNUG_CHECK(encoder != nullptr, "no quantizer for {}", name(type));
  SNUG_CHECK(count % layout(type).block_elements == 0,
             "{} elements are no whole number of {} blocks", count, name(type));
  bool finite = true;
  float greatest = 0;
  for (int64_t i = 0; i < count; ++i) {
    finite &= std::abs(in[i]) <= 0x1.fffffep127f;
    greatest = std::max(greatest, std::abs(in[i]));
  }
  if (!finite)
    throw UserError(
        "it holds infinities or values that are no numbers, which {} cannot hold; the training "
        "that made it diverged, so go back to an earlier checkpoint",
        name(type));
  encoder->encode(in, importance, out, count);
  // Scales are float16 numbers.
  constexpr float kGreatestScale = 65504;
  if (greatest <= kGreatestScale) return;
  std::vector<float> back(static_cast<size_t>(count));
  dequantize(type, out, back.data(), count);
  if (std::ranges::all_of(back, [](float value) { return std::isfinite(value); })) return;
  throw UserError(
      "it holds {:g}, which {} cannot hold, since its scales are float16 numbers; keep the model "
      "in "
      "F32 or BF16",
      greatest, name(type));
}

}  // namespace snug::files
