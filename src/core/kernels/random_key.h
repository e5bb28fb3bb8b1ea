// The key of a tensor's random stream in one optimizer step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::kernels {

// One round of splitmix64.
inline uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

inline uint64_t random_key(uint64_t seed, int64_t step, uint64_t tensor_id) {
  return mix64(mix64(mix64(seed) ^ static_cast<uint64_t>(step)) ^ tensor_id);
}

// The key of a mask: of its place in the model, and of the pass that draws it, which is in `own`
// or, in work that is recorded once for many passes, in a GPU's memory.
struct MaskKey {
  MaskKey(uint64_t key = 0)  // NOLINT(google-explicit-constructor): a whole key
      : own(key) {}
  MaskKey(uint64_t place, const uint64_t* pass) : own(place), of_pass(pass) {}

  uint64_t own;
  const uint64_t* of_pass = nullptr;  // null, or what `own` is combined with (exclusive or)
};

}  // namespace snug::kernels
