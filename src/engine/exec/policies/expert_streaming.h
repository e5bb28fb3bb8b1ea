// Expert streaming: beside weight streaming, which brings a block's other weights, each expert's
// are on the device only while it computes, and only if the router chose it. The device then holds
// one expert's weights, with prefetch also the next one's. Where few tokens choose few experts, as
// in generation, only those are copied; a block that activation checkpointing computes again has
// them copied once more.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/ops/device/copy_stream.h"
#include "core/ops/linear/expert_weights.h"
#include "engine/exec/policies/home_copies.h"
#include "engine/exec/policy.h"

namespace snug::exec {

class ExpertStreaming final : public Policy {
 public:
  ExpertStreaming(const std::vector<nn::Unit*>& units, ops::CopyStream& copies, bool prefetch);

  void before_forward(UnitRun& run) override { lend(run); }
  void after_forward(UnitRun& /*run*/) override { lent_.reset(); }
  void before_backward(UnitRun& run) override { lend(run); }
  void after_backward(UnitRun& /*run*/) override { lent_.reset(); }
  void abandon() override { lent_.reset(); }

 private:
  void lend(const UnitRun& run);

  HomeCopies from_home_;
  std::vector<std::unique_ptr<ops::ExpertWeights>> sources_;  // by unit; null: it has no experts
  std::optional<ops::ExpertWeightsGuard> lent_;
};

// The weights that it brings, by expert: those of the files, on this rank. Adapters stay with the
// block's other weights.
std::vector<std::vector<nn::Parameter*>> streamed_experts(nn::Unit& unit);

}  // namespace snug::exec
