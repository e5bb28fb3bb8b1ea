// The engine: a model's units on a device with the policies and the optimizer of a recipe.
// make_engine() builds it on cpu or cuda to run and on meta to plan, so that the two cannot differ;
// engine/run.h takes its steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "core/dist/mesh.h"
#include "core/nn/objective.h"
#include "core/nn/precision.h"
#include "core/ops/device/copy_stream.h"
#include "core/optim/optimizer.h"
#include "engine/exec/executor.h"
#include "engine/exec/updater.h"
#include "engine/parallel/stages.h"
#include "files/checkpoint/training_checkpoint.h"
#include "models/model.h"
#include "recipe/recipe.h"

namespace snug::exec {
class Sharding;
}  // namespace snug::exec

namespace snug::engine {

struct Engine {
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

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
  std::vector<std::vector<nn::Parameter*>> updated;  // by unit: parameters, or this rank's pieces
  std::vector<optim::NamedTensor> parameters;        // the same: their host copies, if any
  std::vector<bool> counted;  // by parameter: false if another rank adds its gradient to the norm
  exec::Sharding* sharding = nullptr;      // owned by the executor; null if not in use
  bool updates_on_host = false;            // recipe.updates_on_host()
  bool publishes_weights = false;          // the device's weights are copies of host copies
  std::shared_ptr<exec::Updater> updater;  // after all that it works with

  memory::Ledger& ledger() const;
  memory::Ledger& host_ledger() const;
  memory::Ledger& disk_ledger() const;

  // The tensors that a checkpoint saves.
  checkpoint::TrainingTensors training_tensors() const;
  // Call after anything but the steps of a run has written weights.
  void weights_changed() const;
  // Calls `write` for each unit to fill its parameters. If ranks shard the model, only that unit's
  // values are allocated during the call; parameters for which keeps() is false may be skipped.
  void fill_weights(const std::function<void(nn::Unit&)>& write) const;
  // Whether this rank keeps any element of the parameter between uses.
  bool keeps(const nn::Parameter& parameter) const;
  // Frees all gradients: the next backward starts new ones.
  void drop_gradients() const;

  // Those whose gradients this rank adds to the norm.
  std::vector<optim::NamedTensor> counted_parameters() const;
  // The gradient norm over all ranks, from this rank's sum of squares.
  double global_norm(double sum_of_squares) const;
};

// Allocates parameters (content undefined) and optimizer states. `model` must outlive the engine.
// With a mesh of several processes the engine holds this rank's part, as the recipe's strategy
// says. `optimizer`: instead of the recipe's.
std::unique_ptr<Engine> make_engine(models::Model& model, const recipe::Recipe& recipe,
                                    at::Device device, int64_t max_seqlen,
                                    std::shared_ptr<dist::Mesh> mesh = dist::single_mesh(),
                                    const optim::MakeOptimizer& optimizer = {});

}  // namespace snug::engine
