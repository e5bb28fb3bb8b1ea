// The key of a tensor's random stream in one optimizer step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define SNUG_KEY_FUNCTION __host__ __device__ inline
#else
#define SNUG_KEY_FUNCTION inline
#endif

namespace snug::kernels {

// One round of splitmix64.
SNUG_KEY_FUNCTION uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

inline uint64_t random_key(uint64_t seed, int64_t step, uint64_t tensor_id) {
  return mix64(mix64(mix64(seed) ^ static_cast<uint64_t>(step)) ^ tensor_id);
}

// The key of a mask: one number, or in work that is recorded once for many passes what makes it of
// the key of the pass that runs, which is in a GPU's memory then.
struct MaskKey {
  MaskKey(uint64_t key = 0)  // NOLINT(google-explicit-constructor): the whole key
      : own(key) {}
  // At a place in the model.
  MaskKey(uint64_t place, const uint64_t* pass) : own(place), of_pass(pass), mixes(1) {}

  MaskKey mixed() const {
    MaskKey result = *this;
    if (of_pass == nullptr)
      result.own = mix64(own);
    else
      ++result.mixes;
    return result;
  }

  uint64_t own;
  const uint64_t* of_pass = nullptr;
  int mixes = 0;
};

SNUG_KEY_FUNCTION uint64_t mask_key_of(uint64_t own, const uint64_t* of_pass, int mixes) {
  if (of_pass == nullptr) return own;
  uint64_t key = own ^ *of_pass;
  for (int i = 0; i < mixes; ++i) key = mix64(key);
  return key;
}

}  // namespace snug::kernels
