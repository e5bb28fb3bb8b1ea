// Seeded randomness that is the same on every platform and compiler, which std::shuffle is not.
// SplitMix64 (Steele, Lea, Flood 2014) under Fisher–Yates with unbiased bounds (Lemire 2019).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace snug::data {

class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t next();
  uint64_t below(uint64_t bound);  // uniform in [0, bound), bound > 0

 private:
  uint64_t state_;
};

// An independent generator for one purpose (an epoch, a split) of a seed.
SplitMix derive(uint64_t seed, uint64_t purpose);

// 0 … count-1 in random order.
std::vector<int64_t> permutation(int64_t count, SplitMix generator);

}  // namespace snug::data
