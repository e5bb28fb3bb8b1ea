// A run: a model on a device with the techniques and the optimizer of a recipe, and the steps that
// it takes. Training, the library and plans all have one; on meta tensors it is a plan.
//
// Losses are means over the terms of the whole global batch, so that k micro-batches of b samples
// train exactly as one of k·b, and many processes with a share each as one with all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/optim/loss_scaler.h"
#include "data/micro_batch.h"
#include "engine/engine.h"
#include "engine/exec/policies/number_watch.h"
#include "engine/extensions.h"
#include "engine/steps/step_observer.h"
#include "engine/steps/validation.h"
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
  std::vector<double> figures;  // of the objective, in its order: means over the terms
  // How many tokens each expert of a mixture got, block after block (what was computed again counts
  // again). A block without experts has zeros.
  std::vector<double> routed;
};

using SampleIndices = std::vector<std::vector<int64_t>>;  // [micro-batch][sample]

struct RunOptions {
  at::Device device = at::kCPU;
  int64_t longest = 0;  // tokens of a sample, at most
  std::shared_ptr<dist::Mesh> mesh = dist::single_mesh();
  Extensions extensions = {};
};

class Run {
 public:
  // Allocates weights (content undefined: engine().fill_weights()) and optimizer states. The model,
  // the recipe and the training samples must outlive the run.
  Run(models::Model& model, const recipe::Recipe& recipe, data::BatchSource& samples,
      const RunOptions& options);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // `observer` is told of the steps that follow, which it must outlive, instead of the one before.
  void observe(StepObserver& observer) { observer_ = &observer; }

  // Announces the samples of the next steps, in order, so that micro-batches can be made ahead.
  void expect(const SampleIndices& micro_batches) { samples_.expect(micro_batches); }
  // Takes one step at learning rate `lr` with this process's share of the global batch: as many
  // micro-batches as every other's, of which some may be empty. On OutOfMemory the gradients are
  // dropped; unless is_updating(), parameters and states are as before, and the step may be tried
  // again.
  StepResult step(const SampleIndices& micro_batches, double lr);
  // The step that failed had begun to update: some parameters may have their new values.
  bool is_updating() const { return is_updating_; }

  // The loss over `num_samples` of `samples` from `first_sample` on, train.micro_batch_size at a
  // time, in at most `max_batches` (0: all). Called by all processes, which share the work.
  ValidationResult evaluate(data::BatchSource& samples, int64_t num_samples,
                            int64_t max_batches = 0, int64_t first_sample = 0);

  // As log_probs_of_documents().
  std::vector<double> log_probs(data::BatchSource& samples, int64_t num_samples,
                                const std::function<void(int64_t)>& after_each = {});

  // After a step whose loss or gradient norm was no number: runs its micro-batches again and says
  // which unit made the first such number ("the gradient of model.layers.3…, in micro-batch 2"), or
  // that none did. Changes no weights. Called by all ranks.
  std::string first_non_finite();

  // Completes a delayed update, so that the device has the latest weights. For the end of training
  // only: it changes which weights the next step uses.
  void finish() { engine_->updater->finish(); }

  Engine& engine() { return *engine_; }
  const Engine& engine() const { return *engine_; }
  optim::LossScaler& scaler() { return scaler_; }
  const optim::LossScaler& scaler() const { return scaler_; }

 private:
  using Batches = std::vector<std::shared_ptr<const data::MicroBatch>>;

  Batches make_batches(const SampleIndices& micro_batches) const;
  // What all processes' micro-batches count, before any has run.
  StepResult count(const Batches& batches) const;
  // What the objective has to know of these samples before its passes.
  double estimate(const SampleIndices& micro_batches);
  // `result` has the counts of the micro-batches, and gets their loss and routes.
  void forward_backward(const Batches& batches, StepResult& result);
  void take_step(const Batches& batches, double lr, StepResult& result);
  void sweep(exec::Sweep sweep, const optim::StepOptions& options, const Batches& batches,
             StepResult& result);
  double gradient_norm() const;
  std::optional<exec::NonFinite> watch_again();

  const recipe::Recipe& recipe_;
  data::BatchSource& samples_;
  std::unique_ptr<Engine> engine_;
  optim::LossScaler scaler_;
  StepObserver nobody_;
  StepObserver* observer_ = &nobody_;
  bool is_updating_ = false;
  uint64_t dropout_key_ = 0;            // of the step
  double estimate_ = 0;                 // of the step
  SampleIndices last_;                  // of the last step
  exec::NumberWatch* watch_ = nullptr;  // owned by the executor; null until one is needed
};

// Halves every micro-batch that has more than one sample.
SampleIndices split_micro_batches(const SampleIndices& micro_batches);

}  // namespace snug::engine
