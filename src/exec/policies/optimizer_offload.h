// Optimizer offload (ZeRO-Offload, Ren et al. 2021): optimizer states and the weights that they
// update live in host memory. A unit's gradients leave the device as soon as its backward is done;
// the host steps; the new weights come back. The device holds weights and one unit's gradients;
// with overlap those of two, since they leave while the unit before runs backward.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "exec/policy.h"
#include "ops/copy_stream.h"

namespace snug::exec {

class OptimizerOffload final : public Policy {
 public:
  // `updated`: what the optimizer updates, by unit.
  OptimizerOffload(std::vector<std::vector<nn::Parameter*>> updated, ops::CopyStream& copies,
                   bool overlap)
      : updated_(std::move(updated)), copies_(copies), overlap_(overlap) {}

  // Adds the unit's gradients to those at their home, and frees them on the device. Where they are
  // summed over ranks meanwhile, those of the unit after it.
  void after_backward(UnitRun& run) override;
  // All of them are at home when this returns.
  void after_micro_batch() override;
  void abandon() override;

 private:
  // A gradient on the device, and where it goes: its home, or a place to add it from.
  struct Leaving {
    nn::Parameter* parameter;
    at::Tensor gradient;
    at::Tensor landing;
  };

  void send_units(size_t first, size_t last);
  void send_home(nn::Parameter& parameter, std::vector<ops::Copy>& copies);
  void settle();

  std::vector<std::vector<nn::Parameter*>> updated_;
  ops::CopyStream& copies_;
  bool overlap_;
  std::vector<Leaving> leaving_;
  ops::CopyStream::Ticket on_their_way_;
};

// Starts copies of the device's weights from their homes.
void send_weights_from_home(const std::vector<nn::Parameter*>& parameters, ops::CopyStream& copies);

}  // namespace snug::exec
