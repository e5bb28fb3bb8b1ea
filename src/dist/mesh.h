// How a run's processes are laid out: a grid with an axis for each way of sharing the work, and for
// each axis the group of processes that differ in that coordinate alone.
//
// Ranks are numbered with the tensor axis innermost, since its collectives are the most frequent
// and belong on the fastest links, then context, shard, replicate, and pipeline outermost.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/group.h"

namespace snug::dist {

enum class Axis { Pipeline, Replicate, Shard, Context, Tensor };
inline constexpr size_t kNumAxes = 5;
const char* name(Axis);  // as in --mesh: "pp", "dp", "fsdp", "cp", "tp"

struct MeshShape {
  std::array<int, kNumAxes> sizes{1, 1, 1, 1, 1};

  int& operator[](Axis axis) { return sizes[static_cast<size_t>(axis)]; }
  int operator[](Axis axis) const { return sizes[static_cast<size_t>(axis)]; }
  int num_ranks() const;
  // Groups of samples that are computed apart: replicate times shard.
  int num_data_ranks() const { return (*this)[Axis::Replicate] * (*this)[Axis::Shard]; }
  // Parts that flat shards are cut into: ranks along the context axis keep one each, since all of
  // them need the same weights and add to the same gradients.
  int num_shards() const { return (*this)[Axis::Shard] * (*this)[Axis::Context]; }
  // Whose gradients are added up.
  int num_gradient_ranks() const { return (*this)[Axis::Replicate] * num_shards(); }
  int coordinate(Axis axis, int rank) const;
  // Which of the parts that flat shards are cut into is this rank's.
  int shard_of(int rank) const {
    return coordinate(Axis::Shard, rank) * (*this)[Axis::Context] + coordinate(Axis::Context, rank);
  }
  // The ranks that differ from `rank` in that coordinate alone, and itself; for data in replicate
  // and shard, for shards in shard and context, for gradients in all three. In the order of their
  // rank in the group.
  std::vector<int> members(Axis axis, int rank) const;
  std::vector<int> data_members(int rank) const;
  std::vector<int> shard_members(int rank) const;
  std::vector<int> gradient_members(int rank) const;
  bool operator==(const MeshShape&) const = default;
};

// As --mesh takes it, without axes of one rank: "dp=2,fsdp=4"; empty for a single process.
std::string show(const MeshShape& shape);

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
