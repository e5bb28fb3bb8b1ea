// The four-phase memory table: what was live before forward, after forward, after backward and
// after the optimizer step, at steps 0, 1 and every 50th.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/engine.h"
#include "report/run_record.h"

namespace snug::engine {

class PhaseRecorder {
 public:
  PhaseRecorder(const engine::Engine& engine, std::vector<report::PhaseRecord>& phases)
      : device_(engine.device.type()),
        ledger_(engine.ledger()),
        host_(engine.host_ledger()),
        phases_(phases) {}

  // Records of this step are taken until the next call. `step` counts from 0.
  void begin_step(int64_t step);
  // Once per step and phase: later micro-batches repeat the first one's picture.
  void record(const char* phase);

 private:
  c10::DeviceType device_;
  const memory::Ledger& ledger_;
  const memory::Ledger& host_;
  std::vector<report::PhaseRecord>& phases_;
  int64_t step_ = 0;
  bool wanted_ = false;
};

}  // namespace snug::engine
