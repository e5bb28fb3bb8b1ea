// The operations of one optimizer step on a GPU, counted without one: every kernel with the bytes
// that it moves and the arithmetic of its products. At the device's full rates they give the
// shortest time that the step could take.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/candidate.h"

namespace snug::plan {

// All calls of one kernel or library function in a step.
struct Operation {
  std::string name;
  double launches = 0;
  double bytes_read = 0, bytes_written = 0;
  double link_bytes = 0;  // between host and device
  double flops = 0;
  double seconds = 0;  // each call: its bytes or its arithmetic, whichever takes longer
};

struct CountedStep {
  std::vector<Operation> operations;  // the longest first
  double tokens = 0;                  // of the step, on this device
  double block_launches = 0;          // of a block's forward and backward, on average
  double recorded_launches = 0;       // within CUDA graphs
  double graphs = 0;                  // of them, launched with one call each
  int64_t host_waits = 0;             // for the device
  double product_seconds = 0;         // the model's own products at the peak rate
  double device_seconds = 0;          // of all operations, one after the other
  double host_seconds = 0;            // of launching them

  double launches() const;
  double host_launches() const { return launches() - recorded_launches + graphs; }
  double bytes() const;  // read and written
  double seconds() const { return std::max(device_seconds, host_seconds); }
  // The most of the peak that the model's own products can reach.
  double share_of_peak() const { return seconds() > 0 ? product_seconds / seconds() : 0; }
};

// The host's time for a launch through libtorch and CUDA that is assumed: a common figure.
inline constexpr double kSecondsPerLaunch = 5e-6;

// `device` must be a GPU.
CountedStep count_step(const models::Model& model, const recipe::Recipe& recipe,
                       const Workload& work, const DeviceProfile& device);

std::string operations_text(const CountedStep& step);
nlohmann::json operations_json(const CountedStep& step);

}  // namespace snug::plan
