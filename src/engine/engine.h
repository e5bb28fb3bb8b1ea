// The engine: a model's units on a device with the policies and the optimizer of a recipe.
// make_engine() builds it on cpu or cuda to run and on meta to plan, so that the two cannot differ.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/dist/mesh.h"
#include "core/nn/objective.h"
#include "core/nn/precision.h"
#include "core/ops/device/copy_stream.h"
#include "core/optim/loss_scaler.h"
#include "core/optim/optimizer.h"
#include "engine/delayed_update.h"
#include "engine/exec/executor.h"
#include "engine/parallel/stages.h"
#include "files/checkpoint/training_checkpoint.h"
#include "models/model.h"
#include "recipe/recipe.h"

namespace snug::exec {
class OptimizerInBackward;
class Sharding;
}  // namespace snug::exec

namespace snug::engine {

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
  std::shared_ptr<dist::Mesh> mesh;         // of all processes of the run
  Stage stage;                              // of the pipeline; the whole model without one
  std::vector<nn::Unit*> units;             // the stage's
  std::unique_ptr<ops::CopyStream> copies;  // for policies that copy between device and host
  std::unique_ptr<exec::Executor> executor;
  std::unique_ptr<optim::Optimizer> optimizer;
  models::Routing routing;  // of the model's experts
  // What training minimises and what validation measures: cross-entropy, the former with the
  // recipe's smoothing and z-loss. May be replaced before the first step.
  std::shared_ptr<const nn::Objective> objective, validated;
  std::unique_ptr<DelayedUpdate> delayed;            // null without delayed_parameter_update
  std::vector<std::vector<nn::Parameter*>> updated;  // by unit: parameters, or this rank's pieces
  std::vector<optim::NamedTensor> parameters;        // the same: their host copies, if any
  std::vector<bool> counted;  // by parameter: false if another rank adds its gradient to the norm
  // Owned by the executor; null if not in use.
  exec::OptimizerInBackward* in_backward = nullptr;
  exec::Sharding* sharding = nullptr;
  bool updates_on_host = false;    // with optimizer_offload
  bool publishes_weights = false;  // the device's weights are copies of host copies

  memory::Ledger& ledger() const;
  memory::Ledger& host_ledger() const;
  memory::Ledger& disk_ledger() const;

  // Completes a pending delayed update, so that the device has the latest weights. For the end of
  // training only: it changes which weights the next step uses.
  void finish_updates() const;
  // The tensors that a checkpoint saves.
  checkpoint::TrainingTensors training_tensors() const;
  // Call after anything but step() has written weights.
  void weights_changed() const;
  // Calls `write` for each unit to fill its parameters. If ranks shard the model, only that unit's
  // values are allocated during the call; parameters for which keeps() is false may be skipped.
  void fill_weights(const std::function<void(nn::Unit&)>& write) const;
  // Whether this rank keeps any element of the parameter between uses.
  bool keeps(const nn::Parameter& parameter) const;
  // Frees all gradients: the next backward starts new ones.
  void drop_gradients() const;

  // One optimizer step; with delayed updates it starts its own update and applies the previous one.
  // `run_micro_batches` runs forward and backward of all micro-batches, with
  // nn::Pass::last_micro_batch set for the last; it is called twice if gradients are clipped with
  // the optimizer in backward.
  Update step(const std::function<void()>& run_micro_batches, const UpdateOptions& options,
              optim::LossScaler& scaler);

 private:
  // The gradient norm over all ranks, from this rank's sum of squares.
  double global_norm(double sum_of_squares) const;
  std::vector<optim::NamedTensor> counted_parameters() const;
};

// Allocates parameters (content undefined) and optimizer states. `model` must outlive the engine.
// With a mesh of several processes the engine holds this rank's part, as the recipe's strategy
// says.
Engine make_engine(models::Model& model, const recipe::Recipe& recipe, at::Device device,
                   int64_t max_seqlen, std::shared_ptr<dist::Mesh> mesh = dist::single_mesh());

}  // namespace snug::engine
