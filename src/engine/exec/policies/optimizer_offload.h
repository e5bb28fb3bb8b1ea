// Optimizer offload (ZeRO-Offload, Ren et al. 2021): optimizer states and the weights that they
// update live in host memory. A unit's gradients leave the device as soon as its backward is done;
// the host runs the optimizer; the new weights are copied back. The device holds the weights and
// one unit's gradients, or two units' with overlap, where a unit's gradients are copied during the
// next unit's backward.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/ops/device/copy_stream.h"
#include "engine/exec/policy.h"

namespace snug::exec {

class OptimizerOffload final : public Policy {
 public:
  // `updated`: the parameters that the optimizer updates, by unit.
  OptimizerOffload(std::vector<std::vector<nn::Parameter*>> updated, ops::CopyStream& copies,
                   bool overlap)
      : updated_(std::move(updated)), copies_(copies), overlap_(overlap) {}

  // Adds the unit's gradients to those on the host and frees them on the device. If their sum over
  // ranks overlaps with the backward, does so for the unit of the backward before this one.
  void after_backward(UnitRun& run) override;
  // When this returns, all gradients are on the host.
  void after_micro_batch() override;
  void abandon() override;

 private:
  // A gradient on the device and its destination: the host gradient, or a buffer from which it is
  // added.
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

}  // namespace snug::exec
