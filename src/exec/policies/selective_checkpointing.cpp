// SPDX-License-Identifier: Apache-2.0
#include "exec/policies/selective_checkpointing.h"

#include "memory/placement.h"

namespace snug::exec {

void SelectiveCheckpointing::before_forward(UnitRun& run) {
  dropped_.resize(static_cast<size_t>(run.num_units));
  if (run.record && !run.is_last()) recorder_ = std::make_unique<ops::KeptRecorder>(&kept_);
}

void SelectiveCheckpointing::after_forward(UnitRun& run) {
  if (recorder_ == nullptr) return;
  recorder_.reset();
  for (const ops::Recomputable& r : kept_.recomputable) memory::vacate(r.tensor);
  dropped_[static_cast<size_t>(run.index)] = std::move(kept_.recomputable);
  kept_ = {};
}

void SelectiveCheckpointing::before_backward(UnitRun& run) {
  // Let go at once: from here on only the graph holds what it needs.
  std::vector<ops::Recomputable> dropped =
      std::exchange(dropped_[static_cast<size_t>(run.index)], {});
  for (const ops::Recomputable& r : dropped) {
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
