// The replayed caching allocator against what libtorch's documentation and source say of it: sizes
// worked out by hand.
// SPDX-License-Identifier: Apache-2.0
#include "plan/caching_allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace snug::plan {
namespace {

constexpr int64_t kMega = 1 << 20;

TEST(CachingAllocator, SmallOnesShareSegmentsOfTwoMegabytes) {
  CachingAllocator allocator;
  ASSERT_TRUE(allocator.allocate(1, 1));
  EXPECT_EQ(allocator.reserved(), 2 * kMega);
  for (uint64_t id = 2; id <= 4096; ++id) ASSERT_TRUE(allocator.allocate(id, 512));
  EXPECT_EQ(allocator.reserved(), 2 * kMega) << "4096 x 512 bytes fill one segment";
  ASSERT_TRUE(allocator.allocate(5000, 512));
  EXPECT_EQ(allocator.reserved(), 4 * kMega);
}

TEST(CachingAllocator, MiddlingOnesShareSegmentsOfTwenty) {
  CachingAllocator allocator;
  ASSERT_TRUE(allocator.allocate(1, 3 * kMega));
  EXPECT_EQ(allocator.reserved(), 20 * kMega);
  ASSERT_TRUE(allocator.allocate(2, 9 * kMega));
  ASSERT_TRUE(allocator.allocate(3, 8 * kMega));
  EXPECT_EQ(allocator.reserved(), 20 * kMega);
  ASSERT_TRUE(allocator.allocate(4, 2 * kMega));
  EXPECT_EQ(allocator.reserved(), 40 * kMega);
}

TEST(CachingAllocator, LargeOnesAreMadeToMeasure) {
  CachingAllocator allocator;
  ASSERT_TRUE(allocator.allocate(1, 11 * kMega));
  EXPECT_EQ(allocator.reserved(), 12 * kMega) << "rounded to two megabytes";
  allocator.free(1);
  EXPECT_EQ(allocator.reserved(), 12 * kMega) << "kept for the next one";
  ASSERT_TRUE(allocator.allocate(2, 11 * kMega + 100));
  EXPECT_EQ(allocator.reserved(), 12 * kMega);
  ASSERT_TRUE(allocator.allocate(3, 11 * kMega));
  EXPECT_EQ(allocator.reserved(), 24 * kMega);
}

// A rest of at most one megabyte of a large block is not split off.
TEST(CachingAllocator, SplitsOnlyWhatIsWorthIt) {
  CachingAllocator allocator;
  ASSERT_TRUE(allocator.allocate(1, 20 * kMega));
  allocator.free(1);
  ASSERT_TRUE(allocator.allocate(2, 19 * kMega));
  ASSERT_TRUE(allocator.allocate(3, 2 * kMega));
  EXPECT_EQ(allocator.reserved(), 40 * kMega) << "the last megabyte went with the first";
}

TEST(CachingAllocator, NeighboursMergeWhenFreed) {
  CachingAllocator allocator;
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(allocator.allocate(id, 5 * kMega));
  EXPECT_EQ(allocator.reserved(), 20 * kMega);
  for (const uint64_t id : {2, 4, 3}) allocator.free(id);
  ASSERT_TRUE(allocator.allocate(5, 9 * kMega));
  EXPECT_EQ(allocator.reserved(), 20 * kMega) << "fits into the three merged ones";
}

TEST(CachingAllocator, GivesFreeSegmentsBackBeforeItRefuses) {
  CachingAllocator allocator(40 * kMega);
  ASSERT_TRUE(allocator.allocate(1, 30 * kMega));
  allocator.free(1);
  ASSERT_TRUE(allocator.allocate(2, 36 * kMega));
  EXPECT_EQ(allocator.reserved(), 36 * kMega);
  EXPECT_FALSE(allocator.allocate(3, 6 * kMega));
  allocator.free(2);
  EXPECT_TRUE(allocator.allocate(4, 6 * kMega));
}

TEST(CachingAllocator, RandomTrafficNeverReservesLessThanIsLive) {
  std::mt19937 random(5);
  CachingAllocator allocator;
  std::map<uint64_t, int64_t> live;
  int64_t total = 0;
  for (uint64_t id = 1; id < 20000; ++id) {
    const auto drawn = random();  // first, whatever the compiler
    const int64_t bytes = 1 + static_cast<int64_t>(drawn % (1U << (random() % 25)));
    ASSERT_TRUE(allocator.allocate(id, bytes));
    live[id] = bytes;
    total += bytes;
    while (live.size() > 200) {
      const auto victim = std::next(live.begin(), random() % 200);
      allocator.free(victim->first);
      total -= victim->second;
      live.erase(victim);
    }
    ASSERT_GE(allocator.reserved(), total);
  }
  for (const auto& [id, bytes] : live) allocator.free(id);
  const int64_t reserved = allocator.reserved();
  ASSERT_TRUE(allocator.allocate(30000, 512));
  EXPECT_EQ(allocator.reserved(), reserved) << "everything merged again";
}

// The replayed expandable segments against what libtorch's source says of them: sizes worked out by
// hand.

constexpr int64_t kMi = 1 << 20;

TEST(ExpandableAllocator, MapsGranulesOfTwoAndTwentyMegabytes) {
  ExpandableAllocator allocator;
  ASSERT_TRUE(allocator.allocate(1, 1));
  EXPECT_EQ(allocator.reserved(), 2 * kMi);
  ASSERT_TRUE(allocator.allocate(2, 3 * kMi));
  EXPECT_EQ(allocator.reserved(), 22 * kMi);
  ASSERT_TRUE(allocator.allocate(3, 30 * kMi));
  EXPECT_EQ(allocator.reserved(), 42 * kMi) << "it grows out of the free 17 behind the first";
  ASSERT_TRUE(allocator.allocate(4, 7 * kMi));
  EXPECT_EQ(allocator.reserved(), 42 * kMi);
}

// With segments that are made to measure the large one would be new memory.
TEST(ExpandableAllocator, WhatIsFreedInSmallBlocksServesALargeOne) {
  ExpandableAllocator allocator;
  CachingAllocator fixed;
  for (uint64_t id = 1; id <= 4; ++id) {
    ASSERT_TRUE(allocator.allocate(id, 50 * kMi));
    ASSERT_TRUE(fixed.allocate(id, 50 * kMi));
  }
  for (uint64_t id = 1; id <= 4; ++id) {
    allocator.free(id);
    fixed.free(id);
  }
  ASSERT_TRUE(allocator.allocate(9, 200 * kMi));
  ASSERT_TRUE(fixed.allocate(9, 200 * kMi));
  EXPECT_EQ(allocator.reserved(), 200 * kMi);
  EXPECT_EQ(fixed.reserved(), 400 * kMi);
}

TEST(ExpandableAllocator, AHoleIsTakenBeforeTheEndGrows) {
  ExpandableAllocator allocator;
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(allocator.allocate(id, 40 * kMi));
  allocator.free(2);
  ASSERT_TRUE(allocator.allocate(4, 25 * kMi));
  ASSERT_TRUE(allocator.allocate(5, 15 * kMi));
  EXPECT_EQ(allocator.reserved(), 120 * kMi);
}

TEST(ExpandableAllocator, GivesFreeMemoryBackBeforeItRefuses) {
  ExpandableAllocator allocator(100 * kMi);
  for (uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(allocator.allocate(id, 20 * kMi));
  EXPECT_FALSE(allocator.allocate(6, 20 * kMi));
  allocator.free(2);
  allocator.free(4);
  EXPECT_EQ(allocator.reserved(), 100 * kMi) << "kept for the next one";
  // No 40 MiB lie together, but as much may be mapped behind.
  ASSERT_TRUE(allocator.allocate(7, 40 * kMi));
  EXPECT_EQ(allocator.reserved(), 100 * kMi);
  EXPECT_FALSE(allocator.allocate(8, 20 * kMi));
  allocator.free(7);
  EXPECT_TRUE(allocator.allocate(9, 30 * kMi));
  EXPECT_LE(allocator.reserved(), 100 * kMi);
}

TEST(ExpandableAllocator, RandomTrafficReservesWhatIsLiveAndLittleMore) {
  std::mt19937 random(5);
  ExpandableAllocator allocator;
  CachingAllocator fixed;
  std::map<uint64_t, int64_t> live;
  int64_t total = 0, most = 0;
  for (uint64_t id = 1; id < 20000; ++id) {
    const auto drawn = random();
    const int64_t bytes = 1 + static_cast<int64_t>(drawn % (1U << (random() % 28)));
    ASSERT_TRUE(allocator.allocate(id, bytes));
    ASSERT_TRUE(fixed.allocate(id, bytes));
    live[id] = bytes;
    total += bytes;
    most = std::max(most, total);
    while (live.size() > 200) {
      const auto victim = std::next(live.begin(), random() % 200);
      allocator.free(victim->first);
      fixed.free(victim->first);
      total -= victim->second;
      live.erase(victim);
    }
    ASSERT_GE(allocator.reserved(), total);
  }
  EXPECT_LT(allocator.peak_reserved(), most * 5 / 4);
  EXPECT_LT(allocator.peak_reserved(), fixed.peak_reserved());
  for (const auto& [id, bytes] : live) allocator.free(id);
  const int64_t reserved = allocator.reserved();
  ASSERT_TRUE(allocator.allocate(30000, reserved - 100 * kMi));
  EXPECT_EQ(allocator.reserved(), reserved) << "everything merged again; the small pool has a part";
}

}  // namespace
}  // namespace snug::plan
