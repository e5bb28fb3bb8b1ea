// Meshes as text, and the grid's arithmetic against counting coordinates one by one.
// SPDX-License-Identifier: Apache-2.0
#include "recipe/mesh.h"

#include <set>

#include "support.h"

namespace snug::recipe {
namespace {

MeshShape shape_of(int pipeline, int replicate, int shard, int context, int tensor) {
  return {{pipeline, replicate, shard, /*expert=*/1, context, tensor}};
}

TEST(MeshShape, IsReadWhole) {
  MeshShape shape;
  EXPECT_EQ(read_mesh("dp=2, fsdp=4,tp=2 ,pp=3,cp=1", shape), "");
  EXPECT_EQ(shape, shape_of(3, 2, 4, 1, 2));
  EXPECT_EQ(shape.num_ranks(), 48);
  EXPECT_EQ(shape.num_data_ranks(), 8);
  EXPECT_EQ(mesh_text(shape), "pp=3,dp=2,fsdp=4,tp=2");
  EXPECT_EQ(mesh_text({}), "");
  EXPECT_CONTAINS(read_mesh("sp=2", shape), "there is no axis \"sp\"; the axes are dp (copies)");
  EXPECT_CONTAINS(read_mesh("", shape), "there is no axis");
  EXPECT_CONTAINS(read_mesh("dp=2,", shape), "there is no axis");
  for (const char* text : {"dp=0", "dp=-1", "dp=", "dp", "dp=two", "dp=1.5", "dp=2=2"})
    EXPECT_CONTAINS(read_mesh(text, shape), "is not a whole number of devices from 1") << text;
  EXPECT_CONTAINS(read_mesh("dp=2,dp=2", shape), "dp is given twice");
  for (const char* text : {"dp=9000000000000000000", "dp=1048576,fsdp=1048576"})
    EXPECT_CONTAINS(read_mesh(text, shape), "asks for more than 65536 devices") << text;
}

TEST(MeshShape, TensorIsInnermostAndPipelineOutermost) {
  const MeshShape shape = shape_of(2, 3, 2, 2, 2);
  EXPECT_EQ(shape.num_ranks(), 48);
  EXPECT_EQ(shape.num_data_ranks(), 6);
  int rank = 0;
  for (int p = 0; p < 2; ++p)
    for (int r = 0; r < 3; ++r)
      for (int s = 0; s < 2; ++s)
        for (int c = 0; c < 2; ++c)
          for (int t = 0; t < 2; ++t, ++rank) {
            EXPECT_EQ(shape.coordinate(Axis::Pipeline, rank), p);
            EXPECT_EQ(shape.coordinate(Axis::Replicate, rank), r);
            EXPECT_EQ(shape.coordinate(Axis::Shard, rank), s);
            EXPECT_EQ(shape.coordinate(Axis::Context, rank), c);
            EXPECT_EQ(shape.coordinate(Axis::Tensor, rank), t);
          }
}

// Along each axis the groups cut all ranks into sets of which each member sees the same list.
TEST(MeshShape, MembersPartAllRanks) {
  const MeshShape shape = shape_of(2, 3, 2, 1, 2);
  for (size_t a = 0; a < kNumAxes; ++a) {
    const auto axis = static_cast<Axis>(a);
    std::set<int> seen;
    for (int rank = 0; rank < shape.num_ranks(); ++rank) {
      const std::vector<int> members = shape.members(axis, rank);
      ASSERT_EQ(static_cast<int>(members.size()), shape[axis]);
      EXPECT_EQ(members[static_cast<size_t>(shape.coordinate(axis, rank))], rank);
      for (const int member : members) EXPECT_EQ(shape.members(axis, member), members);
      seen.insert(members.begin(), members.end());
    }
    EXPECT_EQ(static_cast<int>(seen.size()), shape.num_ranks());
  }
}

TEST(MeshShape, DataMembersAreReplicatesOfShards) {
  const MeshShape shape = shape_of(1, 2, 2, 1, 2);
  EXPECT_EQ(shape.data_members(0), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(shape.data_members(5), (std::vector<int>{1, 3, 5, 7}));
}

// Ranks along the context axis share flat shards and gradients, but no samples.
TEST(MeshShape, ContextRanksShareShardsAndGradients) {
  const MeshShape shape = shape_of(1, 2, 2, 2, 2);
  EXPECT_EQ(shape.num_data_ranks(), 4);
  EXPECT_EQ(shape.num_shards(), 4);
  EXPECT_EQ(shape.num_gradient_ranks(), 8);
  EXPECT_EQ(shape.data_members(0), (std::vector<int>{0, 4, 8, 12}));
  EXPECT_EQ(shape.shard_members(0), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(shape.shard_members(13), (std::vector<int>{9, 11, 13, 15}));
  EXPECT_EQ(shape.gradient_members(0), (std::vector<int>{0, 2, 4, 6, 8, 10, 12, 14}));
  for (int rank = 0; rank < shape.num_ranks(); ++rank)
    EXPECT_EQ(shape.shard_members(rank)[static_cast<size_t>(shape.shard_of(rank))], rank);
}

// Ranks along the expert axis have samples of their own and are copies of each other's shards.
TEST(MeshShape, ExpertRanksAreDataRanks) {
  MeshShape shape = shape_of(1, 2, 2, 1, 1);
  shape[Axis::Expert] = 2;
  EXPECT_EQ(mesh_text(shape), "dp=2,fsdp=2,ep=2");
  EXPECT_EQ(shape.num_data_ranks(), 8);
  EXPECT_EQ(shape.num_shards(), 2);
  EXPECT_EQ(shape.num_gradient_ranks(), 8);
  EXPECT_EQ(shape.members(Axis::Expert, 2), (std::vector<int>{2, 3}));
  EXPECT_EQ(shape.data_members(5), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(shape.members({Axis::Replicate, Axis::Expert}, 2), (std::vector<int>{2, 3, 6, 7}));
}

}  // namespace
}  // namespace snug::recipe
