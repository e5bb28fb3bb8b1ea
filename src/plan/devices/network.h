// The bytes that collectives send over the links between devices, and their time: rings, as NCCL
// and MPI use for large messages, with a latency per hop. Links are those within a machine and each
// device's share of the network between machines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/dist/mesh.h"

namespace snug::plan {

struct Network {
  // Per device and direction, as far as collectives reach them.
  double bytes_per_second_within = 0;
  double bytes_per_second_between = 0;
  double latency_within = 0;  // seconds a hop
  double latency_between = 0;
  int64_t ranks_per_machine = 1;
};

// How a group is spread over machines: `size` ranks, `on_machine` on each.
struct GroupPlace {
  int64_t size = 1;
  int64_t on_machine = 1;

  int64_t num_machines() const { return (size + on_machine - 1) / on_machine; }
};

// For the group `members`, which contains `rank`.
GroupPlace place_of(const std::vector<int>& members, int rank, int64_t ranks_per_machine);
// For the group of `rank` along an axis.
GroupPlace place_of(const dist::MeshShape& mesh, dist::Axis axis, int rank,
                    int64_t ranks_per_machine);

// Bytes that one rank sends over each kind of link.
struct LinkBytes {
  double within = 0;
  double between = 0;

  double sum() const { return within + between; }
  LinkBytes& operator+=(const LinkBytes& other);
};

// A ring sends 2 (N-1)/N of an all-reduce's bytes, (N-1)/N of an all-gather's or reduce-scatter's.
// One of a machine's k ranks has its neighbour on another machine; rings are laid so that the
// devices take turns.
LinkBytes bytes_sent(dist::Operation operation, int64_t bytes, const GroupPlace& place);
// The time of all calls, one after another.
double seconds_of(dist::Operation operation, const dist::Traffic& traffic, const GroupPlace& place,
                  const Network& network);

}  // namespace snug::plan
