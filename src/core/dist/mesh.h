// The mesh of a run's processes: for each axis the group of processes that differ only in that
// coordinate.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/dist/group.h"
#include "recipe/mesh.h"

namespace snug::dist {

using recipe::Axis;
using recipe::kNumAxes;
using recipe::MeshShape;

class Mesh {
 public:
  // One group per axis. `data` spans replicate, shard and expert, `world` everything; `back` is a
  // second group of the pipeline axis. With a context axis `shards` spans shard and context,
  // `gradients` also the rest of data, and `context_reversed` has the context ranks in reverse
  // order. With an expert axis `copies` spans replicate and expert, `same_experts` replicate and
  // shard.
  struct Groups {
    std::array<std::unique_ptr<Group>, kNumAxes> axes;
    std::unique_ptr<Group> back, data, world;
    // Null if the context axis has one rank.
    std::unique_ptr<Group> shards, gradients, context_reversed;
    // Null if the expert axis has one rank.
    std::unique_ptr<Group> copies, same_experts;
  };
  Mesh(MeshShape shape, int rank, Groups groups);

  const MeshShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  int size(Axis axis) const { return shape_[axis]; }
  int coordinate(Axis axis) const { return shape_.coordinate(axis, rank_); }
  Group& group(Axis axis) const { return *groups_.axes[static_cast<size_t>(axis)]; }
  // Ranks with different samples.
  Group& data() const { return *groups_.data; }
  // Ranks that together hold one copy of the sharded model.
  Group& shards() const { return groups_.shards ? *groups_.shards : group(Axis::Shard); }
  // Ranks over which gradients and losses are summed.
  Group& gradients() const { return groups_.gradients ? *groups_.gradients : data(); }
  // Ranks that hold the same shard of every parameter but experts.
  Group& copies() const { return groups_.copies ? *groups_.copies : group(Axis::Replicate); }
  // Ranks over which the gradients of an expert are summed: those that have it.
  Group& same_experts() const { return groups_.same_experts ? *groups_.same_experts : gradients(); }
  // The context axis in reverse order: its last rank is rank 0.
  Group& context_reversed() const {
    return groups_.context_reversed ? *groups_.context_reversed : group(Axis::Context);
  }
  Group& world() const { return *groups_.world; }
  // For messages between pipeline stages. Each direction has its own group, so that two stages that
  // send to each other at the same time do not deadlock.
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

// The transport, which determines a collective's memory besides its tensors.
enum class Transport { Mpi, Nccl };

// A mesh whose collectives move nothing: for a single process, or to plan rank `rank` of many. With
// more than one rank tensors must be on meta.
std::shared_ptr<Mesh> planned_mesh(const MeshShape& shape, int rank = 0,
                                   Transport transport = Transport::Mpi);
std::shared_ptr<Mesh> single_mesh();

}  // namespace snug::dist
