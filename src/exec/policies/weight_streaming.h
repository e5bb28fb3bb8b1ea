// Weight streaming: weights live in host memory, and are on the device only while their unit runs
// (Pudipeddi et al. 2020, L2L; ZeRO-Infinity). The device then holds one unit's weights, whatever
// the size of the model.
//
// Kept graphs refer to the weights' storages, which are emptied and filled again: so this works
// with and without activation checkpointing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "exec/policy.h"

namespace snug::exec {

class WeightStreaming final : public Policy {
 public:
  void before_forward(UnitRun& run) override;
  void after_forward(UnitRun& run) override;
  void before_backward(UnitRun& run) override;
  void after_backward(UnitRun& run) override;
  void abandon() override;

 private:
  void fetch(nn::Unit& unit);
  void release(nn::Unit& unit);

  std::vector<nn::Unit*> fetched_;
};

}  // namespace snug::exec
