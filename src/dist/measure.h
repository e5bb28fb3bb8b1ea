// How fast collectives are, in the convention of nccl-tests: the algorithm's bandwidth is the
// tensor's size over the time; the bus bandwidth is what each rank's link has to carry for it, so
// that it can be set against the hardware's figure whatever the number of ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "dist/group.h"

namespace snug::dist {

// The share of the tensor that crosses each rank's link: 2 (N-1)/N for an all-reduce.
double bus_factor(Operation operation, int size);

struct Measurement {
  Operation operation = Operation::AllReduce;
  int64_t bytes = 0;  // as in Traffic
  int64_t count = 0;
  int64_t iterations = 0;
  double seconds = 0;  // one iteration's, on the slowest rank

  double algorithm_bandwidth() const { return static_cast<double>(bytes) / seconds; }
};

struct MeasureOptions {
  at::ScalarType type = at::kFloat;
  at::Device device = at::kCPU;
  double seconds = 0.3;  // about so long, and at least two iterations
};

// To be called by all of the group. Checks what arrives first, and throws CommunicationError where
// it is wrong. Send stands for sending to the next rank while receiving from the one before.
Measurement measure(Group& group, Operation operation, int64_t bytes,
                    const MeasureOptions& options);

}  // namespace snug::dist
