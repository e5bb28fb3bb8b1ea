// Activation checkpointing (Chen et al. 2016): keep a unit's inputs only, and run it again when its
// backward comes. Costs one more forward of each such unit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "exec/policy.h"

namespace snug::exec {

class ActivationCheckpointing final : public Policy {
 public:
  // units[i]: whether unit i is run again.
  explicit ActivationCheckpointing(std::vector<bool> units) : units_(std::move(units)) {}
  void before_forward(UnitRun& run) override;

 private:
  std::vector<bool> units_;
};

}  // namespace snug::exec
