// Steps replayed through the caching allocator: what a limit makes of them, worked out by hand.
// SPDX-License-Identifier: Apache-2.0
#include "plan/replay.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace snug::plan {
namespace {

// A run of weights and one step, which uses a block on each of two streams, one after the other.
MemoryEvents run_of(int64_t weights, int64_t block) {
  MemoryEvents events;
  events.all = {{1, weights * kMiB},
                {2, block * kMiB, 1},
                {2, -block * kMiB, 1},
                {3, block * kMiB},
                {3, -block * kMiB}};
  events.step_begin = 1;
  events.step_end = events.all.size();
  return events;
}

TEST(Replay, WithoutALimitNothingIsTriedAgain) {
  const Reserved reserved = replay(run_of(100, 30), 0, Segments::Fixed);
  EXPECT_EQ(reserved.peak, 160 * kMiB);
  EXPECT_TRUE(reserved.fits);
  EXPECT_EQ(reserved.of_step, DriverCalls());
}

TEST(Replay, WhereAllFitsNoStepButTheFirstCallsTheDriver) {
  const Reserved reserved = replay(run_of(100, 30), 160 * kMiB, Segments::Fixed);
  EXPECT_EQ(reserved.peak, 160 * kMiB);
  EXPECT_EQ(reserved.of_step, DriverCalls());
}

// Each stream's block is given back for the other's, in every step.
TEST(Replay, WhereOneOfBothFitsEachStepGivesMemoryBackTwice) {
  const Reserved reserved = replay(run_of(100, 30), 150 * kMiB, Segments::Fixed);
  EXPECT_TRUE(reserved.fits);
  EXPECT_EQ(reserved.peak, 130 * kMiB);
  EXPECT_EQ(reserved.of_step, (DriverCalls{.retries = 2, .gets = 2, .gives = 2}));
}

// 20 MiB at a time, but a stretch of them is one call.
TEST(Replay, ExpandableSegmentsAreGivenBackInGranules) {
  const Reserved reserved = replay(run_of(100, 30), 150 * kMiB, Segments::Expandable);
  EXPECT_TRUE(reserved.fits);
  EXPECT_EQ(reserved.peak, 140 * kMiB);
  EXPECT_EQ(reserved.of_step, (DriverCalls{.retries = 2, .gets = 2, .gives = 2}));
}

TEST(Replay, WhatDoesNotFitIsToldWithoutTheLimit) {
  const Reserved reserved = replay(run_of(100, 30), 120 * kMiB, Segments::Fixed);
  EXPECT_FALSE(reserved.fits);
  EXPECT_EQ(reserved.peak, 160 * kMiB);
}

// Two blocks of 20 MiB side by side, then one of 30: the first step gives the two back for the one.
// The second step's first block takes a part of that one, whose rest is too small for the other.
TEST(Replay, AStepThatFitsOnceMayNotFitAgain) {
  MemoryEvents events;
  events.all = {{1, 100 * kMiB}, {2, 20 * kMiB}, {3, 20 * kMiB}, {2, -20 * kMiB},
                {3, -20 * kMiB}, {4, 30 * kMiB}, {4, -30 * kMiB}};
  events.step_end = events.all.size();
  events.step_begin = events.step_end;  // the first step alone
  EXPECT_TRUE(replay(events, 140 * kMiB, Segments::Fixed).fits);
  events.step_begin = 1;
  EXPECT_FALSE(replay(events, 140 * kMiB, Segments::Fixed).fits);
  EXPECT_TRUE(replay(events, 140 * kMiB, Segments::Expandable).fits);
}

// Blocks of ten units one after the other on a stream of their own.
MemoryEvents gathers(bool late) {
  MemoryEvents events;
  events.all.push_back({1, 100 * kMiB});
  events.step_begin = 1;
  for (uint64_t unit = 2; unit < 12; ++unit) {
    events.all.push_back({unit, 20 * kMiB, 1, late});
    events.all.push_back({unit, -20 * kMiB, 1, late});
  }
  events.step_end = events.all.size();
  return events;
}

TEST(Replay, AHostThatIsAheadTakesMemoryThatTheDeviceStillUses) {
  const auto peak = [](bool late) {
    MemoryEvents events = gathers(late);
    events.step_begin = events.step_end;  // the first step alone
    return replay(events, 0, Segments::Fixed).peak;
  };
  EXPECT_EQ(peak(false), 120 * kMiB);
  EXPECT_EQ(peak(true), 300 * kMiB);
}

// With room for four units the host has to wait for the device after every fourth: in steps of ten
// units on average two and a half times, and each time four segments go and come back.
TEST(Replay, ARetryWaitsForTheDevice) {
  const Reserved reserved = replay(gathers(true), 180 * kMiB, Segments::Fixed);
  EXPECT_TRUE(reserved.fits);
  EXPECT_EQ(reserved.peak, 180 * kMiB);
  EXPECT_GE(reserved.of_step.retries, 2);
  EXPECT_LE(reserved.of_step.retries, 3);
  EXPECT_EQ(reserved.of_step.gives, 4 * reserved.of_step.retries);
}

// Memory of one stream is not used on another.
TEST(Replay, StreamsHaveMemoryOfTheirOwn) {
  MemoryEvents events;
  events.all = {{1, 30 * kMiB}, {1, -30 * kMiB}, {2, 30 * kMiB, 1}};
  events.step_end = events.all.size();
  EXPECT_EQ(replay(events, 0, Segments::Fixed).peak, 60 * kMiB);
  EXPECT_EQ(replay(events, 0, Segments::Expandable).peak, 80 * kMiB) << "in granules of 20 MiB";
}

// Recorded work has memory of its own, for which the cache is given back first; later steps
// allocate nothing there.
TEST(Replay, RecordedWorkDoesNotUseWhatOthersCache) {
  MemoryEvents events;
  events.all = {{1, 100 * kMiB},
                {2, 30 * kMiB},
                {2, -30 * kMiB},
                {.empties = true},
                {3, 30 * kMiB, kStreamOfRecorded},
                {3, -30 * kMiB, kStreamOfRecorded}};
  events.step_begin = 3;
  events.step_end = events.all.size();
  for (const Segments segments : {Segments::Fixed, Segments::Expandable}) {
    const int64_t given_back = replay(events, 0, segments).peak;
    events.all[3] = {4, 2 * kMiB};
    // Cached, it stays beside the other, in granules of 20 MiB where segments expand.
    EXPECT_EQ(replay(events, 0, segments).peak - given_back,
              (segments == Segments::Fixed ? 30 : 40) * kMiB);
    events.all[3] = {.empties = true};
    const Reserved tight = replay(events, given_back, segments);
    EXPECT_TRUE(tight.fits);
    EXPECT_EQ(tight.of_step, DriverCalls());
  }
}

// What recorded work takes is not given back for others.
TEST(Replay, RecordedWorkKeepsItsMemory) {
  MemoryEvents events;
  events.all = {{1, 40 * kMiB, kStreamOfRecorded},
                {1, -40 * kMiB, kStreamOfRecorded},
                {2, 40 * kMiB},
                {2, -40 * kMiB}};
  events.step_end = events.all.size();
  for (const Segments segments : {Segments::Fixed, Segments::Expandable}) {
    EXPECT_EQ(replay(events, 0, segments).peak, 80 * kMiB);
    EXPECT_TRUE(replay(events, 80 * kMiB, segments).fits);
    EXPECT_FALSE(replay(events, 70 * kMiB, segments).fits);
  }
}

// A validation after the step.
TEST(Replay, WhatComesAfterTheStepCounts) {
  MemoryEvents events = run_of(100, 30);
  events.all.push_back({9, 60 * kMiB});
  events.all.push_back({9, -60 * kMiB});
  EXPECT_EQ(replay(events, 0, Segments::Fixed).peak, 220 * kMiB);
  EXPECT_TRUE(replay(events, 160 * kMiB, Segments::Fixed).fits);
  EXPECT_FALSE(replay(events, 159 * kMiB, Segments::Fixed).fits);
}

}  // namespace
}  // namespace snug::plan
