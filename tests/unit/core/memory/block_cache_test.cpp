// The cache of large host blocks: what is handed out never overlaps, sizes share memory, and what
// is mapped stays near what was needed.
// SPDX-License-Identifier: Apache-2.0
#include "core/memory/block_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace snug::memory {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(BlockCache, SizesShareMemory) {
  BlockCache cache(/*pinned=*/false);
  void* whole = cache.take(96 * kMiB);
  cache.give_back(whole);
  ASSERT_EQ(cache.mapped(), 96 * kMiB);
  std::vector<void*> parts;
  for (const size_t size : {10, 30, 16, 40}) parts.push_back(cache.take(size * kMiB));
  EXPECT_EQ(cache.mapped(), 96 * kMiB) << "pieces of the first";
  for (void* part : parts) cache.give_back(part);
  EXPECT_EQ(cache.take(96 * kMiB), whole) << "neighbours join again";
  cache.give_back(whole);
  cache.release();
  EXPECT_EQ(cache.mapped(), 0U);
}

TEST(BlockCache, APinnedBlockStaysWhole) {
  BlockCache cache(/*pinned=*/true);
  void* block = cache.take(64 * kMiB);
  cache.give_back(block);
  EXPECT_NE(cache.take(1 * kMiB), block);
  EXPECT_EQ(cache.take(60 * kMiB), block);
}

struct Block {
  std::byte* data;
  size_t bytes;
  uint8_t mark;
};

void mark(const Block& block) {
  std::memset(block.data, block.mark, 64);
  std::memset(block.data + block.bytes - 64, block.mark, 64);
}

bool is_marked(const Block& block) {
  const auto has_mark = [&](size_t at) { return block.data[at] == std::byte{block.mark}; };
  for (size_t i = 0; i < 64; ++i)
    if (!has_mark(i) || !has_mark(block.bytes - 1 - i)) return false;
  return true;
}

TEST(BlockCache, RandomUseNeitherOverlapsNorGrows) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    BlockCache cache(/*pinned=*/false);
    std::vector<Block> live;
    size_t in_use = 0, most = 0;
    for (int i = 0; i < 4000; ++i) {
      const bool takes = live.empty() || (live.size() < 60 && random() % 2 == 0);
      if (takes) {
        const size_t bytes = kMiB / 4 + random() % (size_t{1} << (18 + random() % 7));
        const Block block{static_cast<std::byte*>(cache.take(bytes)), bytes,
                          static_cast<uint8_t>(random())};
        ASSERT_NE(block.data, nullptr);
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block.data) % 64, 0U);
        mark(block);
        live.push_back(block);
      } else {
        const size_t which = random() % live.size();
        ASSERT_TRUE(is_marked(live[which]));
        cache.give_back(live[which].data);
        live[which] = live.back();
        live.pop_back();
      }
      in_use = cache.mapped() - cache.cached();
      most = std::max(most, in_use);
      size_t wanted = 0;
      for (const Block& block : live) wanted += block.bytes;
      ASSERT_LE(wanted, in_use);
      ASSERT_LE(in_use, wanted + live.size() * 64 * 1024) << "rounded to 64 KiB at most";
      ASSERT_LE(cache.mapped(), most + std::max(48 * kMiB, most / 64));
    }
    for (const Block& block : live) cache.give_back(block.data);
    cache.release();
    EXPECT_EQ(cache.mapped(), 0U);
    EXPECT_EQ(cache.cached(), 0U);
  }
}

}  // namespace
}  // namespace snug::memory
