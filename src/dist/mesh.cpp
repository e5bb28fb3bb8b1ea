// The grid's arithmetic; how its groups come to be is up to the world.
// SPDX-License-Identifier: Apache-2.0
#include "dist/mesh.h"

#include <algorithm>

#include "base/error.h"

namespace snug::dist {
namespace {

// How far apart two ranks are that differ by one in this coordinate: the axes are listed from the
// outermost to the innermost.
int stride(const MeshShape& shape, Axis axis) {
  int ranks = 1;
  for (size_t inner = static_cast<size_t>(axis) + 1; inner < kNumAxes; ++inner) {
    ranks *= shape.sizes[inner];
  }
  return ranks;
}

}  // namespace

const char* name(Axis axis) {
  constexpr std::array<const char*, kNumAxes> kNames{"pp", "dp", "fsdp", "cp", "tp"};
  return kNames[static_cast<size_t>(axis)];
}

std::string show(const MeshShape& shape) {
  std::string text;
  for (size_t i = 0; i < kNumAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (shape[axis] > 1)
      text +=
          (text.empty() ? "" : ",") + std::string(name(axis)) + "=" + std::to_string(shape[axis]);
  }
  return text;
}

int MeshShape::num_ranks() const {
  int ranks = 1;
  for (const int size : sizes) ranks *= size;
  return ranks;
}

int MeshShape::coordinate(Axis axis, int rank) const {
  return rank / stride(*this, axis) % (*this)[axis];
}

std::vector<int> MeshShape::members(Axis axis, int rank) const {
  const int step = stride(*this, axis);
  const int first = rank - coordinate(axis, rank) * step;
  std::vector<int> ranks;
  for (int i = 0; i < (*this)[axis]; ++i) ranks.push_back(first + i * step);
  return ranks;
}

std::vector<int> MeshShape::data_members(int rank) const {
  std::vector<int> ranks;
  for (const int outer : members(Axis::Replicate, rank)) {
    for (const int inner : members(Axis::Shard, outer)) ranks.push_back(inner);
  }
  return ranks;
}

std::vector<int> MeshShape::shard_members(int rank) const {
  std::vector<int> ranks;
  for (const int outer : members(Axis::Shard, rank)) {
    for (const int inner : members(Axis::Context, outer)) ranks.push_back(inner);
  }
  return ranks;
}

std::vector<int> MeshShape::gradient_members(int rank) const {
  std::vector<int> ranks;
  for (const int outer : data_members(rank)) {
    for (const int inner : members(Axis::Context, outer)) ranks.push_back(inner);
  }
  return ranks;
}

Mesh::Mesh(MeshShape shape, int rank, Groups groups)
    : shape_(shape), rank_(rank), groups_(std::move(groups)) {
  SNUG_CHECK(rank_ >= 0 && rank_ < shape_.num_ranks(), "rank {} of {}", rank_, shape_.num_ranks());
}

std::shared_ptr<Mesh> make_mesh(const MeshShape& shape, int rank, const MakeGroup& make_group) {
  constexpr std::array<const char*, kNumAxes> kGroupNames{"pipeline", "replicate", "shard",
                                                          "context", "tensor"};
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
  return std::make_shared<Mesh>(shape, rank, std::move(groups));
}

}  // namespace snug::dist
