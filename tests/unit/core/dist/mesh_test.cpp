// The groups of planned meshes, rank by rank.
// SPDX-License-Identifier: Apache-2.0
#include "core/dist/mesh.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace snug::dist {
namespace {

MeshShape shape_of(int pipeline, int replicate, int shard, int context, int tensor) {
  return {{pipeline, replicate, shard, /*expert=*/1, context, tensor}};
}

TEST(Mesh, TheReversedContextGroupBeginsWithItsLastRank) {
  const auto mesh = planned_mesh(shape_of(1, 1, 1, 4, 1), 1);
  EXPECT_EQ(mesh->group(Axis::Context).rank(), 1);
  EXPECT_EQ(mesh->context_reversed().rank(), 2);
  EXPECT_EQ(mesh->data().size(), 1);
  EXPECT_EQ(mesh->shards().size(), 4);
  EXPECT_EQ(mesh->gradients().rank(), 1);
  // Without such an axis they are the groups that are there anyway.
  const auto without = planned_mesh(shape_of(1, 2, 2, 1, 1), 3);
  EXPECT_EQ(&without->shards(), &without->group(Axis::Shard));
  EXPECT_EQ(&without->gradients(), &without->data());
}

TEST(Mesh, ExpertsHaveGroupsOfTheirOwn) {
  MeshShape shape = shape_of(1, 2, 2, 1, 1);
  shape[Axis::Expert] = 2;
  const auto mesh = planned_mesh(shape, 5);
  EXPECT_EQ(mesh->group(Axis::Expert).rank(), 1);
  EXPECT_EQ(mesh->data().size(), 8);
  EXPECT_EQ(mesh->copies().size(), 4);
  EXPECT_EQ(mesh->same_experts().size(), 4);
  EXPECT_EQ(mesh->same_experts().rank(), 2);
  const auto without = planned_mesh(shape_of(1, 2, 2, 1, 1), 3);
  EXPECT_EQ(&without->copies(), &without->group(Axis::Replicate));
  EXPECT_EQ(&without->same_experts(), &without->gradients());
}

TEST(Mesh, PlannedGroupsHaveTheRanksPlace) {
  const MeshShape shape = shape_of(1, 2, 4, 1, 1);
  const auto mesh = planned_mesh(shape, 6);
  EXPECT_EQ(mesh->group(Axis::Shard).rank(), 2);
  EXPECT_EQ(mesh->group(Axis::Shard).size(), 4);
  EXPECT_EQ(mesh->group(Axis::Replicate).rank(), 1);
  EXPECT_EQ(mesh->data().rank(), 6);
  EXPECT_EQ(mesh->world().size(), 8);
  EXPECT_FALSE(mesh->is_single());
  EXPECT_TRUE(single_mesh()->is_single());
  EXPECT_THROW(planned_mesh(shape, 8), InternalError);
}

}  // namespace
}  // namespace snug::dist
