// Weight streaming: weights live in host memory, and are on the device only while their unit runs
// (Pudipeddi et al. 2020, L2L; ZeRO-Infinity). The device then holds one unit's weights, whatever
// the size of the model; with prefetch those of the next unit too, which travel while one runs.
//
// Kept graphs refer to the weights' storages, which are emptied and filled again: so this works
// with and without activation checkpointing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "exec/policy.h"
#include "ops/copy_stream.h"

namespace snug::exec {

class WeightStreaming final : public Policy {
 public:
  WeightStreaming(std::vector<nn::Unit*> units, ops::CopyStream& copies, bool prefetch)
      : units_(std::move(units)), copies_(copies), prefetch_(prefetch) {}

  void before_forward(UnitRun& run) override;
  void after_forward(UnitRun& run) override;
  void before_backward(UnitRun& run) override;
  void after_backward(UnitRun& run) override;
  void abandon() override;

 private:
  // Sends unit `index`'s weights on their way, unless they are on it or there.
  void send(int64_t index);
  // The unit's weights are there when this returns, and with prefetch unit `next`'s on their way.
  void arrive(int64_t index, int64_t next);
  void release(int64_t index);
  bool is_used_elsewhere(const nn::Parameter* parameter, int64_t index) const;

  std::vector<nn::Unit*> units_;
  ops::CopyStream& copies_;
  bool prefetch_;
  std::map<int64_t, ops::CopyStream::Ticket> sent_;  // by unit: what is on the device or on its way
};

}  // namespace snug::exec
