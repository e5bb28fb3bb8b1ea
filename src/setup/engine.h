// What trains: a model's units on a device, with their policies and optimizer, as a recipe says.
// The same function builds it on cpu or cuda to run and on meta to plan, so that they cannot
// differ.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "checkpoint/training_checkpoint.h"
#include "config/recipe.h"
#include "dist/mesh.h"
#include "exec/executor.h"
#include "models/model.h"
#include "nn/precision.h"
#include "ops/copy_stream.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"
#include "setup/delayed_update.h"
#include "setup/stages.h"

namespace snug::exec {
class OptimizerInBackward;
class Sharding;
}  // namespace snug::exec

namespace snug::setup {

struct UpdateOptions {
  double lr = 0;
  std::optional<double> max_norm;  // clip to this global norm of the gradients
};

struct Update {
  double grad_norm = 0;  // before clipping
  bool happened = true;  // false: gradients overflowed (float16 loss scaling)
};

struct Engine {
  nn::Precision precision;
  at::Device device = at::kCPU;
  std::shared_ptr<dist::Mesh> mesh;  // of the processes that train together
  Stage stage;                       // of the mesh's pipeline; all of the model where it has none
  std::vector<nn::Unit*> units;      // the stage's
  std::unique_ptr<ops::CopyStream> copies;  // of the policies that move tensors to the host
  std::unique_ptr<exec::Executor> executor;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<DelayedUpdate> delayed;            // of the optimizer, if asked for
  std::vector<std::vector<nn::Parameter*>> updated;  // by unit: parameters, or this rank's pieces
  std::vector<optim::NamedTensor> parameters;        // the same at their home, as optimizers see it
  std::vector<bool> counted;  // of them: false where another rank adds the gradient to the norm
  // Of the executor's policies, where there are such.
  exec::OptimizerInBackward* in_backward = nullptr;
  exec::Sharding* sharding = nullptr;
  bool updates_on_host = false;    // optimizer offload
  bool publishes_weights = false;  // the device holds copies of weights at home

  memory::Ledger& ledger() const;
  memory::Ledger& host_ledger() const;
  memory::Ledger& disk_ledger() const;

  // Applies an update that is still to come (delayed_parameter_update), so that the device's
  // weights are the newest. For the end of training: the next step would have run without it.
  void finish_updates() const;
  // What a checkpoint holds, at this moment.
  checkpoint::TrainingTensors training_tensors() const;
  // To be called when something other than step() has written weights.
  void weights_changed() const;
  // Calls `write` for each unit to fill its parameters. Where processes share the model their
  // values are there meanwhile, and of no other unit's; those that keeps() denies may be left out.
  void fill_weights(const std::function<void(nn::Unit&)>& write) const;
  // Whether this process keeps any element of the parameter between uses.
  bool keeps(const nn::Parameter& parameter) const;
  // Frees all gradients: the next backward starts new ones.
  void drop_gradients() const;

  // One optimizer step; with a delayed update its own begins, and the one before takes effect.
  // `run_micro_batches` runs forward and backward of all its micro-batches
  // (nn::Pass::last_micro_batch told for the last one); clipping with the optimizer in backward
  // runs it twice.
  Update step(const std::function<void()>& run_micro_batches, const UpdateOptions& options,
              optim::LossScaler& scaler);

 private:
  // Of all ranks' gradients, given this one's sum of squares.
  double global_norm(double sum_of_squares) const;
  std::vector<optim::NamedTensor> counted_parameters() const;
};

// Allocates parameters (content undefined) and optimizer states. `model` must outlive the engine.
// With a mesh of several processes this is one of them, and holds what the recipe's strategy gives
// it.
Engine make_engine(models::Model& model, const config::Recipe& recipe, at::Device device,
                   int64_t max_seqlen, std::shared_ptr<dist::Mesh> mesh = dist::single_mesh());

}  // namespace snug::setup
