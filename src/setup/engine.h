// What trains: a model's units on a device, with their policies and optimizer, as a recipe says.
// The same function builds it on cpu or cuda to run and on meta to plan, so that they cannot
// differ.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "config/recipe.h"
#include "exec/executor.h"
#include "models/model.h"
#include "nn/precision.h"
#include "optim/optimizer.h"

namespace snug::setup {

struct Engine {
  nn::Precision precision;
  at::Device device = at::kCPU;
  std::unique_ptr<exec::Executor> executor;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<optim::NamedTensor> parameters;

  memory::Ledger& ledger() const;
  // Frees all gradients: the next backward starts new ones.
  void drop_gradients() const;
};

// Allocates parameters (content undefined) and optimizer states. `model` must outlive the engine.
Engine make_engine(models::Model& model, const config::Recipe& recipe, at::Device device,
                   int64_t max_seqlen);

}  // namespace snug::setup
