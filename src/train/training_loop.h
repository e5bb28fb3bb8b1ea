// The steps of a run: from samples to updated weights, with validations and checkpoints in between,
// until the run's length is reached or the user asks to stop.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/dist/world.h"
#include "core/optim/schedule.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "engine/run.h"
#include "engine/run_length.h"
#include "engine/steps/phases.h"
#include "files/checkpoint/training_checkpoint.h"
#include "recipe/recipe.h"
#include "train/records/busy_meter.h"
#include "train/records/live.h"
#include "train/records/run_figures.h"
#include "train/records/run_log.h"
#include "train/records/step_trace.h"
#include "train/startup.h"

namespace snug::train {

class TrainingLoop {
 public:
  // All of it must outlive the loop.
  struct Parts {
    const recipe::Recipe& recipe;
    const data::Dataset& dataset;
    data::BatchSource& validation_batches;
    engine::Run& run;
    dist::World& world;
    dist::Mesh& mesh;
    RunLog& log;
    RunFigures& figures;
    Live& live;
    StartupClock& startup;
    bool saves_last_state = false;  // as a checkpoint
    // Called on all ranks after a validation that is the best so far; null: nothing is written.
    std::function<void()> write_best = {};
  };
  // Starts from `state`, which is that of a checkpoint for a resumed run.
  TrainingLoop(const Parts& parts, const engine::RunLength& length,
               const checkpoint::TrainingState& state);

  // Takes the remaining steps. Throws UserError if the user asked to stop (after a checkpoint) or
  // the loss is not finite, OutOfMemory if a step does not fit.
  void run();
  // Validates, unless that was done after the last step.
  void validate_at_end();
  // Whether the validation loss, or accuracy, has not improved for long (train.early_stopping).
  bool stops_early() const;

 private:
  void take_step();
  void write_profile(StepTrace& profile) const;
  engine::SampleIndices next_micro_batches();
  engine::StepResult step_with_splits(engine::SampleIndices micro_batches, double lr);
  void check_numbers(const engine::StepResult& result);
  void count_in(const engine::StepResult& result);
  void note_sources() const;
  void tell_of_epoch() const;
  report::Figures named(const std::vector<double>& figures) const;
  void tell_of_spike();
  void log_step(const engine::StepResult& result, double lr, double seconds);
  void validate();
  engine::ValidationResult evaluate(report::Figures& sources) const;
  void compare_with_best(report::ValidationRecord validation);
  void tell_of_rare_validations() const;
  void tell_of_early_stop() const;
  void save_checkpoint();
  void save_last_state();
  bool is_over() const;
  // Whether the weights may be why steps are being skipped: no checkpoint of them replaces another.
  bool is_in_doubt() const { return skipped_ > 0 && !parts_.run.engine().precision.loss_scaling; }

  data::SamplerOptions sampler_options(data::SamplerOptions options) const;
  std::vector<int64_t> longest_samples_first() const;
  int64_t micro_batch_size() const;
  void tell_of_shorter_warmup() const;
  void tell_of_skipped_end() const;
  void tell_of_techniques() const;

  Parts parts_;
  const recipe::Recipe& recipe_;
  checkpoint::TrainingState state_;
  engine::PhaseRecorder phases_;
  data::Sampler sampler_;
  optim::Schedule schedule_;
  BusyMeter busy_;
  int64_t epoch_ = 0;                     // in which the step began, from 1
  int64_t skipped_ = 0;                   // steps, the last ones
  int64_t updated_ = 0;                   // the last step that was not skipped
  int64_t spike_ = 0;                     // the step of the last one that was told
  std::optional<int64_t> profiled_step_;  // from 0; none: no profile
};

}  // namespace snug::train
