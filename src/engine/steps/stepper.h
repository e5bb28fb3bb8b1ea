// One optimizer step: the micro-batches of a global batch forward and backward, then clip, then
// update. Losses are means over the terms of the whole global batch, so that k micro-batches
// of b samples train exactly as one of k·b, and many processes with a share each as one with all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/nn/objective.h"
#include "core/optim/loss_scaler.h"
#include "data/micro_batch.h"
#include "engine/engine.h"
#include "engine/exec/policies/number_watch.h"
#include "engine/steps/phases.h"
#include "recipe/recipe.h"

namespace snug::engine {

// The results of the whole global batch, over all processes.
struct StepResult {
  double loss = 0;       // mean over the objective's terms: with cross-entropy its loss tokens
  double grad_norm = 0;  // before clipping
  // False: the step was skipped, since gradients overflowed (float16 loss scaling) or the batch has
  // no term of the loss, which is NaN then.
  bool updated = true;
  int64_t micro_batches = 0;
  int64_t iterations = 0;  // micro-batches of one process
  int64_t tokens = 0;      // real ones
  int64_t padded_tokens = 0;
  int64_t raw_tokens = 0;
  int64_t loss_tokens = 0;
  int64_t terms = 0;  // of the objective
  int64_t micro_batches_with_terms = 0;
  // How many tokens each expert of a mixture got, block after block (what was computed again counts
  // again). A block without experts has zeros.
  std::vector<double> routed;
};

nn::BatchCounts counts_of(const data::MicroBatch& batch);

using SampleIndices = std::vector<std::vector<int64_t>>;  // [micro-batch][sample]

class Stepper {
 public:
  Stepper(engine::Engine& engine, const recipe::Recipe& recipe, data::BatchSource& samples,
          PhaseRecorder& phases);

  // Takes one step at learning rate `lr` with this process's share of the global batch: as many
  // micro-batches as every other's, of which some may be empty. On OutOfMemory the gradients are
  // dropped; unless is_updating(), parameters and states are as before, and the step may be tried
  // again.
  StepResult step(const SampleIndices& micro_batches, double lr);

  // The step that failed had all gradients: some parameters may be updated already.
  bool is_updating() const { return is_updating_; }

  // After a step whose loss or gradient norm was no number: runs its micro-batches again and says
  // which unit made the first such number ("the gradient of model.layers.3…, in micro-batch 2"), or
  // that none did. Changes no weights. Called by all ranks.
  std::string first_non_finite();

  optim::LossScaler& scaler() { return scaler_; }

 private:
  std::vector<data::MicroBatch> make_batches(const SampleIndices& micro_batches) const;
  // Forward and backward of all of them. `result` has their counts, and gets loss and routes.
  void run(const std::vector<data::MicroBatch>& batches, StepResult& result);
  std::optional<exec::NonFinite> watch_again();
  // What all processes' micro-batches count, before any has run.
  StepResult count(const std::vector<data::MicroBatch>& batches) const;

  engine::Engine& engine_;
  const recipe::Recipe& recipe_;
  data::BatchSource& samples_;
  PhaseRecorder& phases_;
  optim::LossScaler scaler_;
  bool is_updating_ = false;
  uint64_t dropout_key_ = 0;            // of the step
  SampleIndices last_;                  // of the last step
  exec::NumberWatch* watch_ = nullptr;  // owned by the executor; null until one is needed
};

// Halves every micro-batch that has more than one sample.
SampleIndices split_micro_batches(const SampleIndices& micro_batches);

}  // namespace snug::engine
