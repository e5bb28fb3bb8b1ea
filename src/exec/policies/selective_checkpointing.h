// Selective activation checkpointing: keep the results of the products, which are expensive, and
// compute those of norms again from their inputs. Costs about a hundredth of a step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "exec/policy.h"
#include "ops/kept.h"

namespace snug::exec {

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
