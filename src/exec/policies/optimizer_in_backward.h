// Optimizer in backward: a unit's weights are updated and its gradients freed as soon as its
// backward of the step's last micro-batch is done, so that the model's gradients never live
// together (Lv et al. 2023, LOMO).
//
// Clipping to a global norm needs every gradient before the first update. It is exact here too: a
// first backward only adds up norms, a second one updates, at the price of a second forward and
// backward.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "exec/policy.h"
#include "ops/elementwise.h"
#include "optim/optimizer.h"

namespace snug::exec {

class OptimizerInBackward final : public Policy {
 public:
  // ranges[i]: unit i's parameters in the optimizer's list, whose tensors are `parameters`, and
  // whose gradients are added to the norm where they are `counted`.
  // `on_host`: the update's scratch is host memory. `updated` is called after unit i's update.
  OptimizerInBackward(optim::Optimizer& optimizer, std::vector<optim::NamedTensor> parameters,
                      std::vector<bool> counted, std::vector<optim::Range> ranges, bool on_host,
                      std::function<void(int64_t)> updated);

  // What the backwards of the coming micro-batches do: only add up norms, or update too.
  void start_measuring();
  void start_updating(const optim::StepOptions& options);
  // Of the gradients since the last start, unscaled by the options; once. On cuda the host waits
  // for it, and for nothing else here.
  double gradient_sum_of_squares() { return squares_.value(); }

  void before_backward(UnitRun& run) override;
  void after_backward(UnitRun& run) override;
  void abandon() override { squares_ = {}; }

 private:
  optim::Optimizer& optimizer_;
  std::vector<optim::NamedTensor> parameters_;
  std::vector<bool> counted_;
  std::vector<optim::Range> ranges_;
  bool on_host_;
  std::function<void(int64_t)> updated_;
  bool updating_ = false;
  optim::StepOptions options_;
  ops::SumOfSquares squares_;
};

}  // namespace snug::exec
