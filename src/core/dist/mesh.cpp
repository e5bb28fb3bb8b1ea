// SPDX-License-Identifier: Apache-2.0
#include "core/dist/mesh.h"

#include <algorithm>

#include "base/error.h"

namespace snug::dist {

Mesh::Mesh(MeshShape shape, int rank, Groups groups)
    : shape_(shape), rank_(rank), groups_(std::move(groups)) {
  SNUG_CHECK(rank_ >= 0 && rank_ < shape_.num_ranks(), "rank {} of {}", rank_, shape_.num_ranks());
}

std::shared_ptr<Mesh> make_mesh(const MeshShape& shape, int rank, const MakeGroup& make_group) {
  constexpr std::array<const char*, kNumAxes> kGroupNames{"pipeline", "replicate", "shard",
                                                          "expert",   "context",   "tensor"};
  Mesh::Groups groups;
  for (size_t axis = 0; axis < kNumAxes; ++axis) {
    groups.axes[axis] = make_group(kGroupNames[axis], shape.members(static_cast<Axis>(axis), rank));
  }
  std::vector<int> all;
  for (int r = 0; r < shape.num_ranks(); ++r) all.push_back(r);
  groups.back = make_group("pipeline back", shape.members(Axis::Pipeline, rank));
  groups.data = make_group("data", shape.data_members(rank));
  groups.world = make_group("world", all);
  if (shape[Axis::Context] > 1) {
    groups.shards = make_group("shards and context", shape.shard_members(rank));
    groups.gradients = make_group("gradients", shape.gradient_members(rank));
    std::vector<int> reversed = shape.members(Axis::Context, rank);
    std::ranges::reverse(reversed);
    groups.context_reversed = make_group("context back", reversed);
  }
  if (shape[Axis::Expert] > 1) {
    groups.copies = make_group("copies", shape.members({Axis::Replicate, Axis::Expert}, rank));
    groups.same_experts =
        make_group("same experts", shape.members({Axis::Replicate, Axis::Shard}, rank));
  }
  return std::make_shared<Mesh>(shape, rank, std::move(groups));
}

}  // namespace snug::dist
