// SPDX-License-Identifier: Apache-2.0
#include "plan/devices/network.h"

#include <algorithm>
#include <cmath>

namespace snug::plan {
namespace {

using dist::Operation;

// The share of a collective's size, as nccl-tests counts it, that a rank sends.
double share_sent(Operation operation, double ranks) {
  switch (operation) {
    case Operation::AllReduce:
      return 2 * (ranks - 1) / ranks;
    case Operation::AllGather:
    case Operation::ReduceScatter:
    case Operation::Broadcast:
      return (ranks - 1) / ranks;
    case Operation::Send:
      return 1;
    case Operation::Receive:  // counted where it is sent
      return 0;
  }
  return 0;
}

// All hops of a ring: every part passes all other ranks. Of a tree: up and down its levels.
double ring_latency(const GroupPlace& place, const Network& network) {
  const int64_t between = place.num_machines() - 1, within = place.size - 1 - between;
  return static_cast<double>(within) * network.latency_within +
         static_cast<double>(between) * network.latency_between;
}

double tree_latency(const GroupPlace& place, const Network& network) {
  const auto levels = [](int64_t count) {
    return std::ceil(std::log2(static_cast<double>(count)));
  };
  return levels(place.on_machine) * network.latency_within +
         levels(place.num_machines()) * network.latency_between;
}

double latency(Operation operation, const GroupPlace& place, const Network& network) {
  switch (operation) {
    case Operation::AllReduce:
      return 2 * std::min(ring_latency(place, network), tree_latency(place, network));
    case Operation::AllGather:
    case Operation::ReduceScatter:
      return ring_latency(place, network);
    case Operation::Broadcast:
      return tree_latency(place, network);
    case Operation::Send:
      return place.num_machines() > 1 ? network.latency_between : network.latency_within;
    case Operation::Receive:
      return 0;
  }
  return 0;
}

}  // namespace

LinkBytes& LinkBytes::operator+=(const LinkBytes& other) {
  within += other.within;
  between += other.between;
  return *this;
}

GroupPlace place_of(const dist::MeshShape& mesh, dist::Axis axis, int rank,
                    int64_t ranks_per_machine) {
  return place_of(mesh.members(axis, rank), rank, ranks_per_machine);
}

GroupPlace place_of(const std::vector<int>& members, int rank, int64_t ranks_per_machine) {
  const auto here = std::count_if(members.begin(), members.end(), [&](int member) {
    return member / ranks_per_machine == rank / ranks_per_machine;
  });
  return {.size = static_cast<int64_t>(members.size()), .on_machine = here};
}

LinkBytes bytes_sent(Operation operation, int64_t bytes, const GroupPlace& place) {
  if (place.size <= 1) return {};
  const double sent =
      share_sent(operation, static_cast<double>(place.size)) * static_cast<double>(bytes);
  const double between =
      place.num_machines() > 1 ? sent / static_cast<double>(place.on_machine) : 0;
  return {.within = sent - between, .between = between};
}

double seconds_of(Operation operation, const dist::Traffic& traffic, const GroupPlace& place,
                  const Network& network) {
  if (place.size <= 1) return 0;
  const LinkBytes sent = bytes_sent(operation, traffic.bytes, place);
  return std::max(sent.within / network.bytes_per_second_within,
                  sent.between / network.bytes_per_second_between) +
         static_cast<double>(traffic.calls) * latency(operation, place, network);
}

}  // namespace snug::plan
