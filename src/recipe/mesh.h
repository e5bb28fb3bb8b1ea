// How a run's devices are laid out: a grid with an axis for each way of sharing the work, as in
// "dp=2,fsdp=4,tp=2".
//
// Ranks are numbered with the tensor axis innermost, since its collectives are the most frequent
// and belong on the fastest links, then context, expert, shard, replicate, and pipeline outermost.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace snug::recipe {

// Pipeline splits the layers into stages, Replicate keeps whole copies, Shard splits each copy into
// shards, Expert spreads the experts of each block, Context splits each sequence, Tensor splits
// each matrix.
enum class Axis { Pipeline, Replicate, Shard, Expert, Context, Tensor };
inline constexpr size_t kNumAxes = 6;
const char* axis_name(Axis);  // as in --mesh: "pp", "dp", "fsdp", "ep", "cp", "tp"

struct MeshShape {
  std::array<int, kNumAxes> sizes{1, 1, 1, 1, 1, 1};

  int& operator[](Axis axis) { return sizes[static_cast<size_t>(axis)]; }
  int operator[](Axis axis) const { return sizes[static_cast<size_t>(axis)]; }
  int num_ranks() const;
  // Ranks with samples of their own: replicate times shard times expert.
  int num_data_ranks() const {
    return (*this)[Axis::Replicate] * (*this)[Axis::Shard] * (*this)[Axis::Expert];
  }
  // Shards of each flat parameter. Ranks along the context axis hold different shards too, since
  // all of them need the same weights and add to the same gradients.
  int num_shards() const { return (*this)[Axis::Shard] * (*this)[Axis::Context]; }
  // Ranks whose gradients are summed, experts' excepted.
  int num_gradient_ranks() const {
    return (*this)[Axis::Replicate] * num_shards() * (*this)[Axis::Expert];
  }
  int coordinate(Axis axis, int rank) const;
  // The index of the shard that this rank holds.
  int shard_of(int rank) const {
    return coordinate(Axis::Shard, rank) * (*this)[Axis::Context] + coordinate(Axis::Context, rank);
  }
  // `rank` and the ranks that differ from it in these coordinates only, sorted.
  std::vector<int> members(Axis axis, int rank) const;
  std::vector<int> members(std::initializer_list<Axis> axes, int rank) const;
  std::vector<int> data_members(int rank) const {
    return members({Axis::Replicate, Axis::Shard, Axis::Expert}, rank);
  }
  std::vector<int> shard_members(int rank) const {
    return members({Axis::Shard, Axis::Context}, rank);
  }
  std::vector<int> gradient_members(int rank) const {
    return members({Axis::Replicate, Axis::Shard, Axis::Expert, Axis::Context}, rank);
  }
  bool operator==(const MeshShape&) const = default;
};

// A mesh has at most this many ranks.
inline constexpr int kMaxRanks = 1 << 16;

// Reads `text` into `shape`; missing axes have size 1. Returns the fault as a sentence, or empty.
std::string read_mesh(std::string_view text, MeshShape& shape);
// "dp=2,fsdp=4": the axes above 1, in the order of the enum; empty for a single device.
std::string mesh_text(const MeshShape& shape);

}  // namespace snug::recipe
