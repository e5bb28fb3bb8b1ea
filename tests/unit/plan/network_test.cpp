// Bytes and seconds of collectives, by hand.
// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/network.h"

#include <gtest/gtest.h>

namespace snug::plan {
namespace {

using dist::Axis;
using dist::Operation;

// Links of 100 and 10 bytes a second, hops of 1 and 5 seconds.
constexpr Network kNetwork{.bytes_per_second_within = 100,
                           .bytes_per_second_between = 10,
                           .latency_within = 1,
                           .latency_between = 5,
                           .ranks_per_machine = 4};

TEST(Network, ARingSendsItsShareOfTheBytes) {
  const GroupPlace alone{.size = 1, .on_machine = 1}, four{.size = 4, .on_machine = 4};
  EXPECT_EQ(bytes_sent(Operation::AllReduce, 800, alone).sum(), 0);
  EXPECT_EQ(bytes_sent(Operation::AllReduce, 800, four).within, 1200);
  EXPECT_EQ(bytes_sent(Operation::AllGather, 800, four).within, 600);
  EXPECT_EQ(bytes_sent(Operation::ReduceScatter, 800, four).within, 600);
  EXPECT_EQ(bytes_sent(Operation::Send, 800, four).within, 800);
  EXPECT_EQ(bytes_sent(Operation::Receive, 800, four).sum(), 0);
  EXPECT_EQ(bytes_sent(Operation::AllGather, 800, four).between, 0);
}

// Two machines of four: each rank's turn to be the neighbour of another machine comes once in four.
TEST(Network, OneOfSoManyNeighboursIsOnAnotherMachine) {
  const LinkBytes sent =
      bytes_sent(Operation::AllGather, 800, GroupPlace{.size = 8, .on_machine = 4});
  EXPECT_DOUBLE_EQ(sent.sum(), 700);
  EXPECT_DOUBLE_EQ(sent.between, 175);
  const LinkBytes apart =
      bytes_sent(Operation::AllReduce, 800, GroupPlace{.size = 2, .on_machine = 1});
  EXPECT_DOUBLE_EQ(apart.between, 800);
  EXPECT_DOUBLE_EQ(apart.within, 0);
}

TEST(Network, TheSlowestLinkAndTheHopsTakeTheTime) {
  const GroupPlace four{.size = 4, .on_machine = 4}, eight{.size = 8, .on_machine = 4};
  // 600 bytes at 100 a second, three hops a call.
  EXPECT_DOUBLE_EQ(seconds_of(Operation::AllGather, {.calls = 2, .bytes = 800}, four, kNetwork),
                   6 + 2 * 3);
  // 175 bytes at 10 a second; six hops within, one between.
  EXPECT_DOUBLE_EQ(
      seconds_of(Operation::ReduceScatter, {.calls = 1, .bytes = 800}, eight, kNetwork),
      17.5 + 6 + 5);
  // A tree has fewer hops than a ring: two levels within, one between, up and down.
  EXPECT_DOUBLE_EQ(seconds_of(Operation::AllReduce, {.calls = 1, .bytes = 800}, eight, kNetwork),
                   35 + 2 * (2 * 1 + 5));
  EXPECT_EQ(seconds_of(Operation::AllReduce, {.calls = 9, .bytes = 800}, GroupPlace{}, kNetwork),
            0);
}

TEST(Network, GroupsLieWhereTheMeshPutsThem) {
  dist::MeshShape mesh;
  mesh[Axis::Replicate] = 2;
  mesh[Axis::Shard] = 4;
  mesh[Axis::Tensor] = 2;
  const auto place = [&](Axis axis, int64_t on_machine) {
    const GroupPlace found = place_of(mesh, axis, 0, on_machine);
    return std::pair{found.size, found.on_machine};
  };
  EXPECT_EQ(place(Axis::Tensor, 8), (std::pair<int64_t, int64_t>{2, 2}));
  EXPECT_EQ(place(Axis::Shard, 8), (std::pair<int64_t, int64_t>{4, 4}));
  EXPECT_EQ(place(Axis::Replicate, 8), (std::pair<int64_t, int64_t>{2, 1}));
  EXPECT_EQ(place(Axis::Shard, 4), (std::pair<int64_t, int64_t>{4, 2}));
  EXPECT_EQ(place(Axis::Replicate, 16), (std::pair<int64_t, int64_t>{2, 2}));
  EXPECT_EQ(place(Axis::Pipeline, 4), (std::pair<int64_t, int64_t>{1, 1}));
}

}  // namespace
}  // namespace snug::plan
