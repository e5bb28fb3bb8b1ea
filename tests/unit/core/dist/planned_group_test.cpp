// Groups that move nothing: of one process, and on meta.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "core/dist/mesh.h"
#include "core/memory/ledger.h"

namespace snug::dist {
namespace {

class Allocators : public ::testing::Environment {
  void SetUp() override { memory::install_allocators(); }
};
const ::testing::Environment* const kAllocators =
    ::testing::AddGlobalTestEnvironment(new Allocators);

const auto kMeta = at::TensorOptions().device(at::kMeta);

int64_t communication_bytes() {
  return memory::meta_ledger().by_category()[static_cast<size_t>(memory::Category::Communication)];
}

MeshShape shards(int size) {
  MeshShape shape;
  shape[Axis::Shard] = size;
  return shape;
}

TEST(SingleGroup, DoesItsPartAtOnce) {
  const auto mesh = single_mesh();
  Group& group = mesh->group(Axis::Shard);
  const at::Tensor whole = at::arange(6).to(at::kFloat);
  const at::Tensor part = at::zeros({6});
  EXPECT_EQ(group.reduce_scatter(part, whole), nullptr);
  EXPECT_TRUE(at::equal(part, whole));
  const at::Tensor gathered = at::zeros({1, 6});
  EXPECT_EQ(group.all_gather(gathered, part), nullptr);
  EXPECT_TRUE(at::equal(gathered[0], whole));
  EXPECT_EQ(group.all_reduce(part), nullptr);
  EXPECT_EQ(group.broadcast(part, 0), nullptr);
  EXPECT_TRUE(at::equal(part, whole));
  group.wait(nullptr);
  EXPECT_EQ(group.sum({1.5}), std::vector<double>{1.5});
  EXPECT_EQ(group.broadcast_text("a", 0), "a");
  EXPECT_EQ(group.gather_texts("b"), std::vector<std::string>{"b"});
  for (const Traffic& traffic : group.traffic()) EXPECT_EQ(traffic.calls, 0);
}

TEST(PlannedGroup, HoldsStagingMemoryUntilItIsWaitedFor) {
  const auto mesh = planned_mesh(shards(4));
  Group& group = mesh->group(Axis::Shard);
  const at::Tensor whole = at::empty({4, 1 << 20}, kMeta);
  const at::Tensor part = at::empty({1 << 20}, kMeta);
  ASSERT_EQ(communication_bytes(), 0);
  const Group::Ticket ticket = group.reduce_scatter(part, whole);
  // Eight chunks of 256 KiB from each of the three others.
  EXPECT_EQ(communication_bytes(), 24 * (256 << 10));
  group.wait(ticket);
  EXPECT_EQ(communication_bytes(), 0);
  group.wait(group.all_gather(whole, part));
  const auto& traffic = group.traffic();
  EXPECT_EQ(traffic[static_cast<size_t>(Operation::ReduceScatter)].bytes, 16 << 20);
  EXPECT_EQ(traffic[static_cast<size_t>(Operation::AllGather)].calls, 1);
}

// However long the tensor and however many the ranks.
TEST(PlannedGroup, StagingMemoryIsSmall) {
  for (const int size : {2, 8, 64}) {
    const auto mesh = planned_mesh(shards(size));
    const at::Tensor tensor = at::empty({int64_t{1} << 32}, kMeta.dtype(at::kBFloat16));
    const Group::Ticket ticket = mesh->group(Axis::Shard).all_reduce(tensor);
    EXPECT_GT(communication_bytes(), 0);
    EXPECT_LE(communication_bytes(), 8 << 20) << size << " ranks";
    mesh->group(Axis::Shard).wait(ticket);
  }
}

TEST(PlannedGroup, NcclNeedsNoneOfOurs) {
  const auto mesh = planned_mesh(shards(4), 0, Transport::Nccl);
  const at::Tensor tensor = at::empty({1 << 20}, kMeta);
  const Group::Ticket ticket = mesh->group(Axis::Shard).all_reduce(tensor);
  EXPECT_EQ(communication_bytes(), 0);
}

TEST(PlannedGroup, AnswersAsIfAllRanksSaidTheSame) {
  const auto mesh = planned_mesh(shards(3));
  EXPECT_EQ(mesh->world().sum({2.0}), std::vector<double>{6.0});
  EXPECT_EQ(mesh->world().gather_texts("x").size(), 3U);
}

// It would leave numbers as they are, which nobody would notice.
TEST(PlannedGroup, RefusesRealNumbers) {
  const auto mesh = planned_mesh(shards(2));
  EXPECT_THROW(mesh->world().all_reduce(at::zeros({3})), InternalError);
}

}  // namespace
}  // namespace snug::dist
