// The four-phase memory table: what was live before forward, after forward, after backward and
// after the optimizer step, at steps 0, 1 and every 50th; of a step's first micro-batch, or of
// each. In a long run it is every 100th step, every 200th, …, so that the table stays small.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "engine/steps/step_observer.h"
#include "report/run_record.h"

namespace snug::engine {

class PhaseRecorder : public StepObserver {
 public:
  PhaseRecorder(const engine::Engine& engine, std::vector<report::PhaseRecord>& phases)
      : device_(engine.device.type()),
        in_turn_(engine.mesh->size(dist::Axis::Pipeline) == 1),
        ledger_(engine.ledger()),
        host_(engine.host_ledger()),
        phases_(phases) {}

  // Records every micro-batch, and calls `tell` with each record.
  using Tell = std::function<void(const report::PhaseRecord&)>;
  void record_micro_batches(Tell tell) { tell_ = std::move(tell); }

  // Records of this step are taken until the next call. `step` counts from 0.
  void begin_step(int64_t step);
  void begin_micro_batch(int64_t number) override;
  void after_forward() override { record("after_fwd"); }
  void after_sweep() override { record("after_bwd"); }
  void after_update() override { record("after_opt_step"); }
  void repeat() override { wanted_ = false; }

 private:
  // Once per step and phase, unless every micro-batch is recorded: later ones repeat the first
  // one's picture.
  void record(const char* phase);
  bool is_recorded(int64_t step) const { return step <= 1 || step % interval_ == 0; }
  void thin();

  c10::DeviceType device_;
  bool in_turn_;  // a micro-batch begins when the one before is over, as it does but in a pipeline
  const memory::Ledger& ledger_;
  const memory::Ledger& host_;
  std::vector<report::PhaseRecord>& phases_;
  Tell tell_;
  int64_t step_ = 0;
  int64_t micro_batch_ = 0;  // from 1
  int64_t interval_ = 50;
  bool wanted_ = false;
};

}  // namespace snug::engine
