// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/activation_checkpointing.h"

#include <algorithm>

#include "core/memory/placement.h"

namespace snug::exec {

// The last unit's backward follows its forward at once, so recomputing it would save nothing.
void ActivationCheckpointing::before_forward(UnitRun& run) {
  run.record = run.record && (run.is_last() || !units_[static_cast<size_t>(run.index)]);
}

void SelectiveCheckpointing::before_forward(UnitRun& run) {
  if (run.record && !run.is_last()) recorder_ = std::make_unique<ops::KeptRecorder>(&kept_);
}

void SelectiveCheckpointing::after_forward(UnitRun& run) {
  if (recorder_ == nullptr) return;
  recorder_.reset();
  // Keeps the unit's output: the next unit reads it.
  std::erase_if(kept_.recomputable,
                [&](const auto& r) { return run.output.shares_storage(r.tensor); });
  for (const ops::Recomputable& r : kept_.recomputable) memory::vacate(r.tensor);
  dropped_[run.key()] = std::move(kept_.recomputable);
  kept_ = {};
}

void SelectiveCheckpointing::before_backward(UnitRun& run) {
  // Released here, so that only the autograd graph holds what it needs.
  const auto dropped = dropped_.extract(run.key());
  if (dropped.empty()) return;
  for (const ops::Recomputable& r : dropped.mapped()) {
    memory::refill(r.tensor, memory::Category::Activations);
    r.compute();
  }
}

void SelectiveCheckpointing::abandon() {
  recorder_.reset();
  kept_ = {};
  dropped_.clear();
}

}  // namespace snug::exec
