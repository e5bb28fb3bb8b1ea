// Optimizer in backward: a unit's weights are updated and its gradients freed as soon as its
// backward of the step's last micro-batch is done, so that the gradients of the whole model never
// exist at once (LOMO, Lv et al. 2023).
//
// Clipping to a global norm needs every gradient before the first update. This stays exact: one
// backward only measures the norm, a second one updates, at the cost of another forward and
// backward.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "core/ops/elementwise.h"
#include "core/optim/optimizer.h"
#include "engine/exec/policy.h"
#include "engine/exec/updater.h"

namespace snug::exec {

class OptimizerInBackward final : public Policy, public Updater {
 public:
  // What is called after unit i's update, and after the sweep.
  struct Publish {
    std::function<void(int64_t)> unit;  // may be empty
    std::function<void()> all;          // may be empty
  };
  // parameters: the optimizer's list; ranges[i]: unit i's part of it; counted[j]: whether parameter
  // j's gradient enters the norm on this rank. `on_host`: the update's scratch is host memory.
  OptimizerInBackward(optim::Optimizer& optimizer, std::vector<optim::NamedTensor> parameters,
                      std::vector<bool> counted, std::vector<optim::Range> ranges, bool on_host,
                      Publish publish);

  bool updates_in_sweep() const override { return true; }
  void begin_sweep(Sweep sweep, const optim::StepOptions& options) override;
  void end_sweep() override;
  double sum_of_squares() override { return squares_.value(); }

  void before_backward(UnitRun& run) override;
  void after_backward(UnitRun& run) override;
  void abandon() override { squares_ = {}; }

 private:
  optim::Optimizer& optimizer_;
  std::vector<optim::NamedTensor> parameters_;
  std::vector<bool> counted_;
  std::vector<optim::Range> ranges_;
  bool on_host_;
  Publish publish_;
  bool updating_ = false;
  optim::StepOptions options_;
  ops::SumOfSquares squares_;
};

}  // namespace snug::exec
