// Activation offload: a unit's activations wait for its backward in host memory, so that the device
// holds one unit's at a time (ZeRO-Infinity, Rajbhandari et al. 2021). With activation
// checkpointing they are just the unit's input.
//
// With prefetch they move to the host during the next unit's forward and back during the following
// unit's backward; the device then holds two units' activations at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/ops/device/copy_stream.h"
#include "core/ops/device/kept.h"
#include "engine/exec/policy.h"

namespace snug::exec {

class ActivationOffload final : public Policy {
 public:
  ActivationOffload(ops::CopyStream& copies, bool prefetch)
      : copies_(copies), prefetch_(prefetch) {}

  void before_forward(UnitRun& run) override;
  void after_forward(UnitRun& run) override;
  void before_backward(UnitRun& run) override;
  void abandon() override;

 private:
  // A tensor of the device and its host copy.
  struct Moved {
    at::Tensor device;
    at::Tensor host;
  };
  struct UnitsOwn {
    std::vector<Moved> moved;
    ops::CopyStream::Ticket on_its_way;  // to the host or back
    int32_t ledger_unit = 0;
  };

  void send_out(UnitsOwn& own, const nn::State& input, const nn::State& output);
  // Waits for the copies and frees the device memory.
  void vacate(UnitsOwn& own);
  void send_back(UnitsOwn& own);
  // What was moved for the unit `distance` after this one in the same micro-batch; null: nothing.
  UnitsOwn* find(const UnitRun& run, int64_t distance);

  ops::CopyStream& copies_;
  bool prefetch_;
  ops::Kept kept_;  // of the unit whose forward is running
  std::unique_ptr<ops::KeptRecorder> recorder_;
  std::map<std::pair<int64_t, int64_t>, UnitsOwn> units_;  // by UnitRun::key
};

}  // namespace snug::exec
