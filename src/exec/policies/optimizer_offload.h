// Optimizer offload (ZeRO-Offload, Ren et al. 2021): optimizer states and the weights that they
// update live in host memory. A unit's gradients leave the device as soon as its backward is done;
// the host steps; the new weights come back. The device holds weights and one unit's gradients.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/policy.h"

namespace snug::exec {

class OptimizerOffload final : public Policy {
 public:
  // Adds the unit's gradients to those at its parameters' home, and frees them on the device.
  void after_backward(UnitRun& run) override;
};

// The device's weights of a unit, from their homes.
void copy_weights_from_home(nn::Unit& unit);

}  // namespace snug::exec
