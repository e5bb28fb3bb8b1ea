// Activation offload: what a unit keeps for its backward waits in host memory, so that the device
// holds one unit's activations at a time (ZeRO-Infinity's, Rajbhandari et al. 2021). With
// activation checkpointing that is the unit's input alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "exec/policy.h"
#include "ops/kept.h"

namespace snug::exec {

class ActivationOffload final : public Policy {
 public:
  void before_forward(UnitRun& run) override;
  void after_forward(UnitRun& run) override;
  void before_backward(UnitRun& run) override;
  void abandon() override;

 private:
  // A device tensor without memory, and its bytes on the host.
  struct Moved {
    at::Tensor device;
    at::Tensor host;
  };

  void move_out(const at::Tensor& tensor, std::vector<Moved>& moved) const;

  ops::Kept kept_;  // of the unit whose forward is running
  std::unique_ptr<ops::KeptRecorder> recorder_;
  std::vector<std::vector<Moved>> moved_;  // by unit
};

}  // namespace snug::exec
