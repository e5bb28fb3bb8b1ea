// SPDX-License-Identifier: Apache-2.0
#include "setup/engine.h"

#include "base/error.h"
#include "exec/policies/activation_checkpointing.h"

namespace snug::setup {
namespace {

std::vector<std::unique_ptr<exec::Policy>> make_policies(const config::Recipe& recipe) {
  std::vector<std::unique_ptr<exec::Policy>> policies;
  if (recipe.activation_checkpointing == "all")
    policies.push_back(std::make_unique<exec::ActivationCheckpointing>());
  return policies;
}

}  // namespace

memory::Ledger& Engine::ledger() const { return memory::ledger_of(device.type()); }

void Engine::drop_gradients() const {
  for (const optim::NamedTensor& parameter : parameters) parameter.tensor.mutable_grad().reset();
}

Engine make_engine(models::Model& model, const config::Recipe& recipe, at::Device device,
                   int64_t max_seqlen) {
  Engine engine{.precision = nn::parse_precision(recipe.precision), .device = device};
  for (nn::Parameter* parameter : model.parameters()) {
    parameter->allocate(device, engine.precision.parameters);
    engine.parameters.push_back({parameter->name, parameter->value});
  }
  model.prepare(device, max_seqlen);
  engine.executor =
      std::make_unique<exec::Executor>(model.units(), make_policies(recipe), engine.ledger());
  engine.optimizer = optim::make_optimizer(recipe.optimizer, engine.parameters);
  return engine;
}

}  // namespace snug::setup
