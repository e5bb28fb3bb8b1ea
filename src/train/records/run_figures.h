// A run's figures as they are now, into its record: peaks, speed, the start, and at the end those
// of every process. Asked for at each checkpoint and at the run's end, whatever the end is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/dist/mesh.h"
#include "engine/engine.h"
#include "engine/host.h"
#include "train/records/run_log.h"
#include "train/startup.h"

namespace snug::train {

class RunFigures {
 public:
  // All three outlive this.
  RunFigures(RunLog& log, const StartupClock& startup, const engine::Host& host)
      : log_(log), startup_(startup), host_(host) {}

  // Once it is there; outlives this.
  void set_engine(const engine::Engine& engine) { engine_ = &engine; }
  // Of the model, and of all devices of the run (0: not known).
  void set_flops(double per_token, double peak_per_second);

  double share_of_peak(double tokens_per_second) const;  // 0: not known

  void fill() const;
  // Every process's memory into the record that the first one writes. To be called by all of them.
  void fill_ranks(const dist::Mesh& mesh) const;

 private:
  RunLog& log_;
  const StartupClock& startup_;
  const engine::Host& host_;
  const engine::Engine* engine_ = nullptr;
  double flops_per_token_ = 0;
  double peak_flops_per_second_ = 0;
};

}  // namespace snug::train
