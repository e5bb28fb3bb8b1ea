// Measures collectives in the convention of nccl-tests: algorithm bandwidth is the tensor's size
// over the time; bus bandwidth is the traffic on each rank's link over the time, comparable with
// the hardware's figure for any number of ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/dist/group.h"

namespace snug::dist {

// The share of the tensor that crosses each rank's link: 2 (N-1)/N for an all-reduce.
double bus_factor(Operation operation, int size);

struct Measurement {
  Operation operation = Operation::AllReduce;
  int64_t bytes = 0;  // as in Traffic
  int64_t count = 0;
  int64_t iterations = 0;
  double seconds = 0;  // per iteration, on the slowest rank

  double algorithm_bandwidth() const { return static_cast<double>(bytes) / seconds; }
};

struct MeasureOptions {
  at::ScalarType type = at::kFloat;
  at::Device device = at::kCPU;
  double seconds = 0.3;  // approximate duration; at least two iterations
};

// All ranks of the group must call it. First checks the results, and throws CommunicationError if
// they are wrong. Send means sending to the next rank while receiving from the previous one.
Measurement measure(Group& group, Operation operation, int64_t bytes,
                    const MeasureOptions& options);

}  // namespace snug::dist
