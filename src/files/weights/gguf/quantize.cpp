// ggml's block formats again, from float32 to blocks: the layouts are those of dequantize.cpp. What
// a block's scales should be is a search, and this one is that of ggml's reference quantizers: the
// same candidates, and the same float operations in the same order, so that the bytes agree.
// The sums of the search must stay in order, which leaves nothing to vectorise within a group: so
// the eight groups of a block (Q6_K: eight of its 16) are computed side by side, one in each lane.
// Compiled twice, for any x86-64 and for AVX2; both give the same bytes.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "files/weights/convert.h"

namespace snug::files {
namespace {

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

struct ToQ4_0 {
  static constexpr int64_t kElements = 32, kBytes = 18;
  [[gnu::always_inline]] static void encode(const float* in, uint8_t* out) {
    const float scale = largest_of(in, 32) / -8.0f, inverse = inverse_of(scale);
    put_half(out, scale);
    const auto code = [&](float value) {
      return std::min(static_cast<int>(value * inverse + 8.5f), 15);
    };
    for (int i = 0; i < 16; ++i)
      out[2 + i] = static_cast<uint8_t>(code(in[i]) | code(in[i + 16]) << 4);
  }
};

// Codes of five bits: the fifth bits go to `high`, the others to `packed`.
template <class Code>
[[gnu::always_inline]] inline void pack_five_bits(const float* in, const Code& code, uint8_t* high,
                                                  uint8_t* packed) {
  uint32_t fifth = 0;
  for (int i = 0; i < 16; ++i) {
    const uint32_t low = code(in[i]), other = code(in[i + 16]);
    packed[i] = static_cast<uint8_t>((low & 15) | (other & 15) << 4);
    fifth |= (low >> 4) << i | (other >> 4) << (i + 16);
  }
  std::memcpy(high, &fifth, 4);
}

struct ToQ5_0 {
  static constexpr int64_t kElements = 32, kBytes = 22;
  [[gnu::always_inline]] static void encode(const float* in, uint8_t* out) {
    const float scale = largest_of(in, 32) / -16.0f, inverse = inverse_of(scale);
    put_half(out, scale);
    const auto code = [&](float value) {
      return static_cast<uint32_t>(std::min(static_cast<int>(value * inverse + 16.5f), 31));
    };
    pack_five_bits(in, code, out + 2, out + 6);
  }
};

struct ToQ5_1 {
  static constexpr int64_t kElements = 32, kBytes = 24;
  [[gnu::always_inline]] static void encode(const float* in, uint8_t* out) {
    const float minimum = *std::min_element(in, in + 32), maximum = *std::max_element(in, in + 32);
    const float scale = (maximum - minimum) / 31.0f, inverse = inverse_of(scale);
    put_half(out, scale);
    put_half(out + 2, minimum);
    const auto code = [&](float value) {
      // Never below zero. NOLINTNEXTLINE(bugprone-incorrect-roundings)
      return static_cast<uint32_t>((value - minimum) * inverse + 0.5f);
    };
    pack_five_bits(in, code, out + 4, out + 8);
  }
};

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

// One number of each of eight groups. A comparison gives 0 or -1 in each lane, and `mask ? a : b`
// chooses by lane.
using Lanes = float __attribute__((vector_size(32)));
using Ints = int32_t __attribute__((vector_size(32)));
constexpr int kLanes = 8;

// To the nearest integer, halves to even, for magnitudes below 2^22: the sum's low bits hold it.
[[gnu::always_inline]] inline void round_lanes(const Lanes& value, Ints& out) {
  const Lanes shifted = value + 0x1.8p23f;
  std::memcpy(&out, &shifted, sizeof(out));
  out = (out & 0x7FFFFF) - 0x400000;
}

[[gnu::always_inline]] inline int round_one(float value) {
  return static_cast<int>(std::bit_cast<uint32_t>(value + 0x1.8p23f) & 0x7FFFFF) - 0x400000;
}

[[gnu::always_inline]] inline void clamp_lanes(Ints& value, int low, int high) {
  value = value < low ? Ints{} + low : value;
  value = value > high ? Ints{} + high : value;
}

// The code of `value` on a grid of which `inverse` is one over the step.
[[gnu::always_inline]] inline void code_of(const Lanes& value, const Lanes& inverse, int low,
                                           int high, Ints& out) {
  round_lanes(inverse * value, out);
  clamp_lanes(out, low, high);
}

[[gnu::always_inline]] inline void magnitude_of(const Lanes& value, Lanes& out) {
  out = value < 0.0f ? -value : value;
}

// Element i of lane g is in[g * size + i].
template <int size>
[[gnu::always_inline]] inline void load_groups(const float* in, Lanes* out) {
  for (int i = 0; i < size; ++i)
    for (int g = 0; g < kLanes; ++g) out[i][g] = in[g * size + i];
}

// Groups below this magnitude count as zero.
constexpr float kNothing = 1e-15f;

// Q6_K: groups of 16 with a scale and codes from -32 to 31.
constexpr int kSigned = 16;

// Among 19 steps around that which maps a group's largest value to -32, the one whose best scale
// leaves the least error, weighted by the squares of the values. `codes` are those of that step,
// plus 32 (0 in a group of nothing).
[[gnu::always_inline]] inline void search_scale(const Lanes* x, Lanes& scale, Ints* codes) {
  Lanes magnitude{}, largest{};
  for (int i = 0; i < kSigned; ++i) {
    Lanes own;
    magnitude_of(x[i], own);
    largest = own > magnitude ? x[i] : largest;
    magnitude = own > magnitude ? own : magnitude;
  }
  const Ints nothing = magnitude < kNothing;
  Lanes best{}, best_inverse{};
  const auto consider = [&](float steps, bool first) __attribute__((always_inline)) {
    const Lanes inverse = -steps / largest;
    Lanes products{}, squares{};
    for (int i = 0; i < kSigned; ++i) {
      Ints code;
      code_of(x[i], inverse, -32, 31, code);
      const Lanes l = __builtin_convertvector(code, Lanes), weight = x[i] * x[i];
      products += weight * x[i] * l;
      squares += weight * l * l;
    }
    const Ints better =
        first ? Ints{} - 1 : (squares > 0.0f) & (products * products > best * squares);
    const Lanes own = squares != 0.0f ? products / squares : Lanes{};
    scale = better ? own : scale;
    best = better ? own * products : best;
    best_inverse = better ? inverse : best_inverse;
  };
  consider(32, true);
  for (int step = -9; step <= 9; ++step)
    if (step != 0) consider(32 + 0.1f * static_cast<float>(step), false);
  scale = nothing ? Lanes{} : scale;
  for (int i = 0; i < kSigned; ++i) {
    code_of(x[i], best_inverse, -32, 31, codes[i]);
    codes[i] = nothing ? Ints{} : codes[i] + 32;
  }
}

struct ToQ6_K {
  static constexpr int64_t kElements = 256, kBytes = 210;
  [[gnu::always_inline]] static void encode(const float* in, uint8_t* out) {
    Lanes x[2][kSigned], found[2];
    Ints codes[2][kSigned];
    for (int64_t half = 0; half < 2; ++half) {
      load_groups<kSigned>(in + half * 128, x[half]);
      found[half] = Lanes{};
      search_scale(x[half], found[half], codes[half]);
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
      pack(codes[half], out + half * 64, out + 128 + half * 32);
    }
  }

  // Half a block: 64 bytes of low nibbles, 32 of high bit pairs.
  [[gnu::always_inline]] static void pack(const Ints* codes, uint8_t* low, uint8_t* high) {
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

// Q4_K and Q5_K: groups of 32 with a scale, a minimum and codes from 0 to kMost. kFirst and kSteps
// say which steps are tried: the range divided by kMost + kFirst, + kFirst + 0.1, ...
constexpr int kUnsigned = 32;

template <int kMost>
struct Search;
template <>
struct Search<15> {
  static constexpr float kFirst = -1.0f;
  static constexpr int kSteps = 20;
};
template <>
struct Search<31> {
  static constexpr float kFirst = -0.5f;
  static constexpr int kSteps = 15;
};

// Of each step tried, the scale and minimum of the weighted least squares; of these, those with the
// least error. Larger values weigh more. `floor` is minus the minimum; codes are those of the step
// that was chosen.
template <int kMost>
[[gnu::always_inline]] inline void search_scale_and_floor(const Lanes* x, Lanes& scale,
                                                          Lanes& floor, Ints* codes) {
  Lanes sum_of_squares{};
  for (int i = 0; i < kUnsigned; ++i) sum_of_squares += x[i] * x[i];
  Lanes mean = sum_of_squares / 32.0f;
  for (int g = 0; g < kLanes; ++g) mean[g] = std::sqrt(mean[g]);
  Lanes weights[kUnsigned];
  for (int i = 0; i < kUnsigned; ++i) {
    magnitude_of(x[i], weights[i]);
    weights[i] += mean;
  }
  Lanes minimum = x[0], maximum = x[0], sum_w = weights[0], sum_x = weights[0] * x[0];
  for (int i = 1; i < kUnsigned; ++i) {
    minimum = x[i] < minimum ? x[i] : minimum;
    maximum = x[i] > maximum ? x[i] : maximum;
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  minimum = minimum > 0.0f ? Lanes{} : minimum;
  const Ints flat = maximum == minimum;
  floor = -minimum;

  Lanes inverse = static_cast<float>(kMost) / (maximum - minimum), begin = minimum;
  scale = 1.0f / inverse;
  Lanes least{};
  for (int i = 0; i < kUnsigned; ++i) {
    Ints code;
    code_of(x[i] - minimum, inverse, 0, kMost, code);
    const Lanes error = scale * __builtin_convertvector(code, Lanes) + minimum - x[i];
    least += weights[i] * (error * error);
  }
  for (int step = 0; step <= Search<kMost>::kSteps; ++step) {
    const float steps = Search<kMost>::kFirst + 0.1f * static_cast<float>(step) + kMost;
    const Lanes tried = steps / (maximum - minimum);
    Ints own[kUnsigned];
    Lanes sum_l{}, sum_l2{}, sum_xl{};
    for (int i = 0; i < kUnsigned; ++i) {
      code_of(x[i] - minimum, tried, 0, kMost, own[i]);
      const Lanes l = __builtin_convertvector(own[i], Lanes);
      sum_l += weights[i] * l;
      sum_l2 += weights[i] * l * l;
      sum_xl += weights[i] * l * x[i];
    }
    const Lanes determinant = sum_w * sum_l2 - sum_l * sum_l;
    Lanes own_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    Lanes own_minimum = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    own_scale = own_minimum > 0.0f ? sum_xl / sum_l2 : own_scale;
    own_minimum = own_minimum > 0.0f ? Lanes{} : own_minimum;
    Lanes errors{};
    for (int i = 0; i < kUnsigned; ++i) {
      const Lanes error = own_scale * __builtin_convertvector(own[i], Lanes) + own_minimum - x[i];
      errors += weights[i] * (error * error);
    }
    const Ints better = (determinant > 0.0f) & (errors < least);
    least = better ? errors : least;
    inverse = better ? tried : inverse;
    begin = better ? minimum : begin;
    scale = better ? own_scale : scale;
    minimum = better ? own_minimum : minimum;  // the next step begins there
  }
  scale = flat ? Lanes{} : scale;
  floor = flat ? floor : -minimum;
  for (int i = 0; i < kUnsigned; ++i) {
    code_of(x[i] - begin, inverse, 0, kMost, codes[i]);
    codes[i] = flat ? Ints{} : codes[i];
  }
}

// scale, minimum, 12 bytes of group scales and minima. Returns the codes by group and element.
template <int kMost>
[[gnu::always_inline]] inline void encode_unsigned(const float* in, uint8_t* out, Ints* codes) {
  Lanes x[kUnsigned], scales, floors;
  load_groups<kUnsigned>(in, x);
  search_scale_and_floor<kMost>(x, scales, floors, codes);
  float largest_scale = 0, largest_floor = 0;
  for (int g = 0; g < kLanes; ++g) {
    largest_scale = std::max(largest_scale, static_cast<float>(scales[g]));
    largest_floor = std::max(largest_floor, static_cast<float>(floors[g]));
  }
  const float scale = put_half(out, largest_scale / 63.0f);
  const float floor = put_half(out + 2, largest_floor / 63.0f);
  const float inverse_scale = largest_scale > 0 ? 63.0f / largest_scale : 0;
  const float inverse_floor = largest_floor > 0 ? 63.0f / largest_floor : 0;
  uint8_t* packed = out + 4;
  std::memset(packed, 0, 12);
  Lanes step, begin;
  for (int g = 0; g < kLanes; ++g) {
    const auto six_bits = [](float value) {
      return std::min<uint8_t>(63, static_cast<uint8_t>(round_one(value)));
    };
    const uint8_t own = six_bits(inverse_scale * scales[g]);
    const uint8_t own_floor = six_bits(inverse_floor * floors[g]);
    if (g < 4) {
      packed[g] |= own;
      packed[g + 4] |= own_floor;
    } else {
      packed[g + 4] = static_cast<uint8_t>((own & 15) | (own_floor & 15) << 4);
      packed[g - 4] |= static_cast<uint8_t>((own >> 4) << 6);
      packed[g] |= static_cast<uint8_t>((own_floor >> 4) << 6);
    }
    step[g] = scale * static_cast<float>(own);
    begin[g] = floor * static_cast<float>(own_floor);
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
  [[gnu::always_inline]] static void encode(const float* in, uint8_t* out) {
    Ints codes[kUnsigned];
    encode_unsigned<15>(in, out, codes);
    pack_nibbles(codes, out + 16);
  }
};

struct ToQ5_K {
  static constexpr int64_t kElements = 256, kBytes = 176;
  [[gnu::always_inline]] static void encode(const float* in, uint8_t* out) {
    Ints codes[kUnsigned];
    encode_unsigned<31>(in, out, codes);
    for (int i = 0; i < kUnsigned; ++i) {
      int fifth = 0;
      for (int g = 0; g < kLanes; ++g) fifth |= codes[i][g] >> 4 << g;
      out[16 + i] = static_cast<uint8_t>(fifth);
    }
    pack_nibbles(codes, out + 48);
  }
};

template <class Block>
[[gnu::always_inline]] inline void encode_all(const float* in, uint8_t* out, int64_t count) {
  for (int64_t i = 0; i < count; i += Block::kElements, out += Block::kBytes)
    Block::encode(in + i, out);
}

template <class Block>
[[gnu::target("avx2")]] void encode_avx2(const float* in, uint8_t* out, int64_t count) {
  encode_all<Block>(in, out, count);
}

template <class Block>
void encode(const float* in, void* out, int64_t count) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  auto* bytes = static_cast<uint8_t*>(out);
  if (has_avx2)
    encode_avx2<Block>(in, bytes, count);
  else
    encode_all<Block>(in, bytes, count);
}

struct Encoder {
  DType type;
  void (*encode)(const float* in, void* out, int64_t count);
};
constexpr std::array<Encoder, 7> kEncoders = {{{DType::Q4_0, encode<ToQ4_0>},
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

void quantize(DType type, const float* in, void* out, int64_t count) {
  const Encoder* encoder = find_encoder(type);
  SNUG_CHECK(encoder != nullptr, "no quantizer for {}", name(type));
  SNUG_CHECK(count % layout(type).block_elements == 0,
             "{} elements are no whole number of {} blocks", count, name(type));
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) finite &= std::abs(in[i]) <= 0x1.fffffep127f;
  if (!finite)
    throw UserError(
        "it holds infinities or values that are no numbers, which {} cannot hold; the training "
        "that made it diverged, so go back to an earlier checkpoint",
        name(type));
  encoder->encode(in, out, count);
}

}  // namespace snug::files
