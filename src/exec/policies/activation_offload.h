// Activation offload: what a unit keeps for its backward waits in host memory, so that the device
// holds one unit's activations at a time (ZeRO-Infinity's, Rajbhandari et al. 2021). With
// activation checkpointing that is the unit's input alone.
//
// With prefetch they leave while the next unit runs forward, and come back while the one before
// runs backward: the device then holds two units' at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "exec/policy.h"
#include "ops/copy_stream.h"
#include "ops/kept.h"

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
  // A tensor of the device, and its bytes on the host.
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
  // The device gives up what has been copied.
  void vacate(UnitsOwn& own);
  void send_back(UnitsOwn& own);
  // What the unit `distance` after this one has sent, in the same micro-batch; null: nothing.
  UnitsOwn* find(const UnitRun& run, int64_t distance);

  ops::CopyStream& copies_;
  bool prefetch_;
  ops::Kept kept_;  // of the unit whose forward is running
  std::unique_ptr<ops::KeptRecorder> recorder_;
  std::map<std::pair<int64_t, int64_t>, UnitsOwn> units_;  // by UnitRun::key
};

}  // namespace snug::exec
