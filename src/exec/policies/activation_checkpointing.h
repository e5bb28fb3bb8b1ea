// Activation checkpointing (Chen et al. 2016): keep a unit's inputs only, and run it again when its
// backward comes. Costs one more forward of each such unit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/policy.h"

namespace snug::exec {

class ActivationCheckpointing final : public Policy {
 public:
  void before_forward(UnitRun& run) override;
};

}  // namespace snug::exec
