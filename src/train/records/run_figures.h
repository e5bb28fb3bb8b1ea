// Fills a run's record with its current figures: peaks, speed, startup, and at the end the memory
// of every process. Used at each checkpoint and at the end of the run, even if it fails.
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
  // All three must outlive this.
  RunFigures(RunLog& log, const StartupClock& startup, const engine::Host& host)
      : log_(log), startup_(startup), host_(host), fit_seconds_before_(log.record().fit_seconds) {}

  // `engine` must outlive this.
  void set_engine(const engine::Engine& engine) { engine_ = &engine; }
  // `per_token`: of the model; `peak_per_second`: of all devices of the run, 0: not known.
  void set_flops(double per_token, double peak_per_second);

  // Around the whole of training, validations and checkpoints included.
  void begin_fit();
  void end_fit();

  double share_of_peak(double tokens_per_second) const;  // 0: not known

  void fill() const;
  // Collects every process's memory in the record of rank 0. Called by all ranks.
  void fill_ranks(const dist::Mesh& mesh) const;

 private:
  RunLog& log_;
  const StartupClock& startup_;
  const engine::Host& host_;
  const engine::Engine* engine_ = nullptr;
  double fit_seconds_before_;  // a resumption
  double fit_begun_ = 0, fit_ended_ = 0;
  double flops_per_token_ = 0;
  double peak_flops_per_second_ = 0;
};

}  // namespace snug::train
