// Weight streaming: weights live in host memory and are on the device only while their unit runs
// (L2L, Pudipeddi et al. 2020; ZeRO-Infinity). The device then holds one unit's weights, whatever
// the model's size; with prefetch also the next unit's, copied meanwhile. What lies in a file is
// read from the disk one unit before it is copied.
//
// Autograd graphs refer to the weights' storages, which are emptied and refilled in place, so this
// works with and without activation checkpointing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <unordered_set>
#include <vector>

#include "core/ops/device/copy_stream.h"
#include "engine/exec/policies/home_copies.h"
#include "engine/exec/policy.h"

namespace snug::exec {

class WeightStreaming final : public Policy {
 public:
  // The weights of experts that ExpertStreaming brings are left to it, if it `streams_experts`.
  WeightStreaming(std::vector<nn::Unit*> units, ops::CopyStream& copies, bool prefetch,
                  bool streams_experts = false);

  void before_forward(UnitRun& run) override;
  void after_forward(UnitRun& run) override;
  void before_backward(UnitRun& run) override;
  void after_backward(UnitRun& run) override;
  void abandon() override;

 private:
  // Starts to copy unit `index`'s weights to the device, unless already started.
  void send(int64_t index);
  // Waits for the unit's weights; with prefetch starts the copies of unit `next`. Without (-1) the
  // pass ends here.
  void arrive(int64_t index, int64_t next);
  void release(int64_t index);
  // What it brings of the unit. Adapters may come and go.
  std::vector<nn::Parameter*> used(int64_t index) const;
  std::vector<std::vector<nn::Parameter*>> all_used() const;

  std::vector<nn::Unit*> units_;
  std::unordered_set<const nn::Parameter*> others_;  // that ExpertStreaming brings
  ops::CopyStream& copies_;
  HomeCopies from_home_;
  bool prefetch_;
  std::map<int64_t, ops::CopyStream::Ticket> sent_;  // by unit: copies that are done or in progress
};

}  // namespace snug::exec
