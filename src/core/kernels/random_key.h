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

}  // namespace snug::kernels
