// What the quantizers of ggml's block formats (quantize.cpp) compute side by side: one number of
// each of eight groups of a block, or of eight blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace snug::files::blocks {

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

}  // namespace snug::files::blocks
