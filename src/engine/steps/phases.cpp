// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/phases.h"

namespace snug::engine {

void PhaseRecorder::begin_step(int64_t step) {
  step_ = step;
  constexpr size_t kMostRecords = 1024;
  constexpr int64_t kMostInterval = int64_t{1} << 40;
  // The first two steps stay, however many records they have.
  const bool has_others = !phases_.empty() && phases_.back().step > 1;
  if (phases_.size() > kMostRecords && has_others && interval_ < kMostInterval) thin();
  wanted_ = is_recorded(step);
}

void PhaseRecorder::thin() {
  interval_ *= 2;
  std::erase_if(phases_, [this](const report::PhaseRecord& r) { return !is_recorded(r.step); });
}

// Nothing happens to the device's memory between one micro-batch's backward and the next one.
void PhaseRecorder::begin_micro_batch(int64_t number) {
  if (number > 0 && !tell_) return;
  if (number > 0 && in_turn_) record("after_bwd");
  micro_batch_ = number + 1;
  record("before_fwd");
}

void PhaseRecorder::record(const char* phase) {
  if (!wanted_) return;
  for (auto it = phases_.rbegin(); !tell_ && it != phases_.rend() && it->step == step_; ++it)
    if (it->phase == phase) return;
  using memory::Category;
  const memory::Snapshot now = ledger_.now();
  const auto bytes = [&](Category category) {
    return now.by_category[static_cast<size_t>(category)];
  };
  phases_.push_back(
      {.step = step_,
       .phase = phase,
       .parameters = bytes(Category::Parameters),
       .gradients = bytes(Category::Gradients),
       .optimizer_device = bytes(Category::Optimizer),
       .optimizer_host = host_.by_category()[static_cast<size_t>(Category::Optimizer)],
       .activations = bytes(Category::Activations),
       .workspace = bytes(Category::Workspace),
       .communication = bytes(Category::Communication),
       .data = bytes(Category::Data),
       .allocated = now.allocated,
       .peak = ledger_.at_peak().allocated,
       .reserved = memory::reserved_on(device_)});
  if (!tell_) return;
  const bool of_step = phases_.back().phase == "after_opt_step";
  phases_.back().micro_batch = of_step ? 0 : micro_batch_;
  tell_(phases_.back());
}

}  // namespace snug::engine
