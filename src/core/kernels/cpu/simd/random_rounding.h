// Stochastic rounding to bfloat16: the discarded half of the bits is the probability of rounding
// away from zero. The random bits are a hash of (key, element index), so that they depend neither
// on threads nor on the instruction set.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cpu/simd/loops.h"

namespace snug::kernels::cpu {
namespace {

// 32 random bits for each of the elements i, i+1, … Two multiplications mix the index; the key
// enters before each. The index's upper half moves the key.
SNUG_INLINE U random_bits(uint64_t key, int64_t i) {
  const auto high = static_cast<uint32_t>(static_cast<uint64_t>(i) >> 32);
  U x = (U)lane_numbers() + static_cast<uint32_t>(i);
  x ^= static_cast<uint32_t>(key) + high * 0x9e3779b9u;
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= (x >> 15) ^ static_cast<uint32_t>(key >> 32);
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// Further bits for the same elements.
SNUG_INLINE U more_bits(U random) {
  const U x = random * 0x9e3779b1u;
  return x ^ (x >> 15);
}

// The value rounded up or down to what a bfloat16 can hold. NaN stays NaN, infinity stays infinity.
SNUG_INLINE F round_randomly(F value, U random) {
  const U bits = ((U)value + (random & 0xffffu)) & 0xffff0000u;
  return value != value ? value : (F)bits;
}

// Stores as T, a bfloat16 by chance where `stochastic`.
template <class T, class Lanes>
SNUG_INLINE void write_rounded(void* array, int64_t i, F value, Lanes lanes, bool stochastic,
                               U random) {
  if constexpr (__is_same(T, BF16)) {
    if (stochastic) value = round_randomly(value, random);
  }
  write<T>(array, i, value, lanes);
}

}  // namespace
}  // namespace snug::kernels::cpu
