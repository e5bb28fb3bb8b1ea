// A run's processes on the grid of its mesh: for each axis the group of processes that differ in
// that coordinate alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/mesh.h"
#include "dist/group.h"

namespace snug::dist {

using config::Axis;
using config::kNumAxes;
using config::MeshShape;

class Mesh {
 public:
  // One an axis; `data` spans replicate and shard, `world` all of them, `back` is another one of
  // the pipeline axis. Where the context axis has ranks, `shards` spans shard and context,
  // `gradients` those and replicate, and `context_reversed` has its ranks the other way round.
  struct Groups {
    std::array<std::unique_ptr<Group>, kNumAxes> axes;
    std::unique_ptr<Group> back, data, world;
    std::unique_ptr<Group> shards, gradients, context_reversed;  // null: the context axis has one
  };
  Mesh(MeshShape shape, int rank, Groups groups);

  const MeshShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  int size(Axis axis) const { return shape_[axis]; }
  int coordinate(Axis axis) const { return shape_.coordinate(axis, rank_); }
  Group& group(Axis axis) const { return *groups_.axes[static_cast<size_t>(axis)]; }
  // Those that run samples of their own.
  Group& data() const { return *groups_.data; }
  // Those that share a copy of the model's flat shards.
  Group& shards() const { return groups_.shards ? *groups_.shards : group(Axis::Shard); }
  // Those whose gradients, and losses, are parts of the same sum.
  Group& gradients() const { return groups_.gradients ? *groups_.gradients : data(); }
  // The ranks of the context axis, of which the last has rank 0.
  Group& context_reversed() const {
    return groups_.context_reversed ? *groups_.context_reversed : group(Axis::Context);
  }
  Group& world() const { return *groups_.world; }
  // For what one stage of the pipeline sends another. Two stages that send each other something at
  // the same time must not wait for each other, so each way has a group.
  Group& between_stages(int from, int to) const {
    return from < to ? group(Axis::Pipeline) : *groups_.back;
  }
  bool is_single() const { return shape_.num_ranks() == 1; }

 private:
  MeshShape shape_;
  int rank_;
  Groups groups_;
};

// A mesh whose groups come from `make_group`, which gets a group's name and members.
using MakeGroup =
    std::function<std::unique_ptr<Group>(const std::string& name, const std::vector<int>& members)>;
std::shared_ptr<Mesh> make_mesh(const MeshShape& shape, int rank, const MakeGroup& make_group);

// What moves the bytes, and so what memory a collective needs besides its tensors.
enum class Transport { Mpi, Nccl };

// A mesh whose collectives move nothing: of one process, or for planning rank `rank` of many. Those
// of more than one rank take tensors on meta only.
std::shared_ptr<Mesh> planned_mesh(const MeshShape& shape, int rank = 0,
                                   Transport transport = Transport::Mpi);
std::shared_ptr<Mesh> single_mesh();

}  // namespace snug::dist
