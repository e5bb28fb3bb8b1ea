// The one driver of every model: runs the units in order and then in reverse, with autograd
// confined to one unit at a time. Training, evaluation, generation and planning all go through it;
// what a memory technique does, it does in the policies' hooks around each unit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "exec/policy.h"
#include "memory/ledger.h"
#include "nn/unit.h"

namespace snug::exec {

class Executor {
 public:
  // `ledger` is the one of the device that the units live on. Units must outlive the executor.
  Executor(std::vector<nn::Unit*> units, std::vector<std::unique_ptr<Policy>> policies,
           memory::Ledger& ledger);

  // Called between a micro-batch's forward and its backward, for the ledger's phase table.
  void on_forward_done(std::function<void()> callback) { forward_done_ = std::move(callback); }

  // Adds the gradients of (pass.gradient_scale * summed loss) to the parameters' gradient buffers.
  // Returns the summed loss, unscaled. Throws OutOfMemory with the executor ready for the next
  // call.
  double forward_backward(const nn::Batch& batch, const nn::Pass& pass);

  // The summed loss alone, no gradients.
  double loss(const nn::Batch& batch, const nn::Pass& pass);

  // Logits (S, V) float32 after each document's last token; fills batch.cache if there is one.
  at::Tensor last_logits(const nn::Batch& batch, at::ScalarType compute);

  const std::vector<nn::Unit*>& units() const { return units_; }
  std::vector<nn::Parameter*> parameters() const;
  at::Device device() const;  // where the units' parameters are, and batches have to be

 private:
  template <class Run>
  auto guarded(const Run& run);
  double run_micro_batch(const nn::Batch& batch, const nn::Pass& pass);
  UnitRun new_run(size_t index, const nn::Pass& pass) const;
  nn::State run_forward(UnitRun& run, const nn::Batch& batch, const nn::Pass& pass);
  nn::State run_backward(UnitRun& run, nn::State gradients, const nn::Batch& batch,
                         const nn::Pass& pass);
  nn::State infer(const nn::Batch& batch, const nn::Pass& pass);

  std::vector<nn::Unit*> units_;
  std::vector<std::unique_ptr<Policy>> policies_;
  std::vector<int32_t> ledger_ids_;
  size_t first_trained_;  // unit: no gradient is wanted before it
  memory::Ledger& ledger_;
  std::function<void()> forward_done_;
};

}  // namespace snug::exec
