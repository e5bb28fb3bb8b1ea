// Who looks on while a step runs is told where it is: training records its memory, a plan counts
// its traffic.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace snug::engine {

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // The passes without gradients that the objective wants before the others
  // (nn::Objective::estimate) begin, and are over.
  virtual void begin_estimate() {}
  virtual void end_estimate() {}
  // Micro-batch `number` of this process, from 0, is about to be made for its forward.
  virtual void begin_micro_batch(int64_t /*number*/) {}
  // Between a micro-batch's forward and its backward, as exec::Executor::on_forward_done().
  virtual void after_forward() {}
  // Forward and backward of all micro-batches are over; twice where gradients are measured first.
  virtual void after_sweep() {}
  virtual void after_update() {}
  // What follows, up to the next step, is run again to find a fault.
  virtual void repeat() {}
};

}  // namespace snug::engine
