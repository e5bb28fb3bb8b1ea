// SPDX-License-Identifier: Apache-2.0
#include "data/random.h"

#include <cstddef>
#include <numeric>

namespace snug::data {

uint64_t SplitMix::next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

uint64_t SplitMix::below(uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  const uint64_t rejected =
      -bound % bound;  // 2^64 mod bound: draws below it would favour small results
  while (true) {
    const Wide product = Wide{next()} * bound;
    if (static_cast<uint64_t>(product) >= rejected) return static_cast<uint64_t>(product >> 64);
  }
}

SplitMix derive(uint64_t seed, uint64_t purpose) {
  SplitMix outer(seed);
  return SplitMix(outer.next() ^ SplitMix(purpose).next());
}

std::vector<int64_t> permutation(int64_t count, SplitMix generator) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[generator.below(i)]);
  return order;
}

}  // namespace snug::data
