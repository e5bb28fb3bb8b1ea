// The one driver of every model: runs the units in order and then in reverse, with autograd
// confined to one unit at a time. Training, evaluation, generation and planning all go through it.
// Memory techniques are policies, called before and after each unit's forward and backward
// (engine/exec/policy.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/memory/ledger.h"
#include "core/nn/unit.h"
#include "engine/exec/policy.h"
#include "engine/exec/recorded_passes.h"

namespace snug::exec {

class StageLinks;

// An objective's sum over a micro-batch, and those of its figures; empty where another stage of a
// pipeline ends the model.
using Sums = std::vector<double>;

// A batch and how to run it. `number` is its index within the optimizer step.
struct MicroBatch {
  nn::Batch batch;
  nn::Pass pass;
  int64_t number = 0;
};

// The micro-batches of one optimizer step, each made when it is needed.
struct MicroBatches {
  int64_t count = 0;
  std::function<MicroBatch(int64_t number)> make;
};

class Executor {
 public:
  // `ledger` is the one of the device that the units live on. Units must outlive the executor.
  Executor(std::vector<nn::Unit*> units, Policies policies, memory::Ledger& ledger);
  // One stage of a pipeline: its ranges of units, one per chunk; `links` connect it to the other
  // stages.
  Executor(std::vector<nn::Unit*> units, Policies policies, memory::Ledger& ledger,
           std::vector<UnitRange> ranges, std::unique_ptr<StageLinks> links);
  ~Executor();

  // One more policy, after those that are there. Between steps only.
  void add_policy(std::shared_ptr<Policy> policy) { policies_.push_back(std::move(policy)); }

  // Micro-batches that are alike are recorded. Before the first step; without a pipeline.
  void record_passes();
  RecordedPasses* recorded() { return recorded_.get(); }  // null: they are not

  // Called between a micro-batch's forward and its backward, for the ledger's phase table; not in
  // one that runs as it was recorded.
  void on_forward_done(std::function<void()> callback) { forward_done_ = std::move(callback); }

  // Adds the gradients of (pass.gradient_scale * objective) to the parameters' gradient buffers.
  // Returns the unscaled objective of each micro-batch. May throw OutOfMemory; the executor is then
  // ready for the next call.
  std::vector<Sums> forward_backward(const MicroBatches& micro_batches);
  double forward_backward(const nn::Batch& batch, const nn::Pass& pass);

  // The objective without gradients.
  Sums sums(const nn::Batch& batch, const nn::Pass& pass);
  // Its own sum alone; 0 where another stage ends the model.
  double objective(const nn::Batch& batch, const nn::Pass& pass);

  // Logits (S, V) float32 after each document's last token; fills batch.cache if there is one.
  // Every stage of a pipeline gets them.
  at::Tensor last_logits(const nn::Batch& batch, at::ScalarType compute);

  const std::vector<nn::Unit*>& units() const { return units_; }
  std::vector<nn::Parameter*> parameters() const;
  at::Device device() const;  // where the units' parameters are and batches must be

  // --- the steps of forward_backward, which Pipeline calls one by one ---

  // A micro-batch whose forward over one range of units is done and whose backward is not.
  struct Flight {
    std::vector<UnitRun> runs;  // of the units that have a backward
    at::Tensor objective;
  };
  const std::vector<UnitRange>& ranges() const { return ranges_; }
  // Whether a unit of the range trains, or units before it need the gradient of its input.
  bool has_backward(const UnitRange& range) const;
  // `micro_batch` is kept by reference until its backward is done.
  nn::State forward(Flight& flight, const UnitRange& range, nn::State input,
                    const MicroBatch& micro_batch);
  // Returns the gradients of the range's input, by name; a tensor without a gradient is missing.
  nn::State backward(Flight& flight, nn::State gradients, const MicroBatch& micro_batch);
  // The gradient that the model's backward starts from: the objective's.
  static nn::State begin_backward(const Flight& flight, const nn::Pass& pass);
  // The host waits for the device here.
  static Sums value_of(const Flight& flight);

 private:
  template <class Run>
  auto guarded(const Run& run);
  Sums run_micro_batch(const MicroBatch& micro_batch);
  at::Tensor run_pass(const MicroBatch& micro_batch);
  UnitRun new_run(int64_t index, const UnitRange& range, const MicroBatch& micro_batch) const;
  nn::State run_forward(UnitRun& run, const MicroBatch& micro_batch);
  nn::State run_backward(UnitRun& run, nn::State gradients, const MicroBatch& micro_batch);
  nn::State infer(const nn::Batch& batch, const nn::Pass& pass);
  nn::State infer(const UnitRange& range, nn::State state, const MicroBatch& micro_batch);
  int64_t first_trained(const UnitRange& range) const;

  std::vector<nn::Unit*> units_;
  Policies policies_;
  std::vector<int32_t> ledger_ids_;
  std::vector<bool> trains_;  // by unit: has parameters that train
  memory::Ledger& ledger_;
  std::vector<UnitRange> ranges_;
  std::unique_ptr<StageLinks> links_;  // null: this process runs the whole model
  std::function<void()> forward_done_;
  std::unique_ptr<RecordedPasses> recorded_;
};

}  // namespace snug::exec
