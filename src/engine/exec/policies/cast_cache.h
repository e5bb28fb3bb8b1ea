// Cast cache: in mixed precision products read 16-bit copies of float32 weights. Without this
// policy each product makes its own, in every forward, recomputation and backward; with it the
// first product's copy serves them all until the backward of the step's last micro-batch. Weights
// change only after that, so the copies, and all results, have the same bits. The copies take 2
// bytes an element, as parameters. They go unit by unit while gradients come, so that a step of one
// micro-batch may have the same peak.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/exec/policy.h"

namespace snug::exec {

class CastCache final : public Policy {
 public:
  // Makes the units' matrices keep their copies. Those of experts do not: which of them compute,
  // and so what they would take, no plan knows.
  explicit CastCache(std::vector<nn::Unit*> units);

  // Frees the copies of a unit that has no backward.
  void after_forward(UnitRun& run) override;
  // Runs before an update in the backward, which is a policy before this one.
  void after_backward(UnitRun& run) override;
  void abandon() override;

 private:
  std::vector<nn::Unit*> units_;
};

}  // namespace snug::exec
