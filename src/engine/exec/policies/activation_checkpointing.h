// Activation checkpointing: results of a forward that are computed again before their backward.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/ops/device/kept.h"
#include "engine/exec/policy.h"

namespace snug::exec {

// Activation checkpointing (Chen et al. 2016): keep only a unit's inputs and recompute the rest
// before its backward. Costs one more forward of each such unit.
class ActivationCheckpointing final : public Policy {
 public:
  // units[i]: whether unit i is recomputed.
  explicit ActivationCheckpointing(std::vector<bool> units) : units_(std::move(units)) {}
  void before_forward(UnitRun& run) override;

 private:
  std::vector<bool> units_;
};

// Selective activation checkpointing: keep the results of matrix products, which are expensive, and
// recompute those of norms from their inputs. Costs about 1 % of a step.
class SelectiveCheckpointing final : public Policy {
 public:
  void before_forward(UnitRun& run) override;
  void after_forward(UnitRun& run) override;
  void before_backward(UnitRun& run) override;
  void abandon() override;

 private:
  ops::Kept kept_;  // of the unit whose forward is running
  std::unique_ptr<ops::KeptRecorder> recorder_;
  // By UnitRun::key.
  std::map<std::pair<int64_t, int64_t>, std::vector<ops::Recomputable>> dropped_;
};

}  // namespace snug::exec
