// SPDX-License-Identifier: Apache-2.0
#include "setup/engine.h"

#include <algorithm>

#include "base/error.h"
#include "exec/policies/optimizer_in_backward.h"
#include "exec/policies/optimizer_offload.h"
#include "memory/guards.h"
#include "memory/placement.h"
#include "setup/policies.h"

namespace snug::setup {
namespace {

// The formula of torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, const std::optional<double>& max_norm) {
  return max_norm && *max_norm > 0 ? std::min(1.0, *max_norm / (norm + 1e-6)) : 1.0;
}

// Weights that are updated on the host have a home there, in float32 where masters are asked for.
void allocate_parameters(models::Model& model, const config::Recipe& recipe, Engine& engine) {
  const at::ScalarType type = engine.precision.parameters;
  const at::ScalarType home_type = recipe.optimizer.master_weights ? at::kFloat : type;
  for (nn::Parameter* parameter : model.parameters()) {
    parameter->allocate(engine.device, type);
    if (engine.updates_on_host) parameter->allocate_home(home_type);
    if (recipe.weight_streaming) memory::vacate(parameter->value);
    engine.parameters.push_back({parameter->name, parameter->kept()});
  }
}

}  // namespace

memory::Ledger& Engine::ledger() const { return memory::ledger_of(device.type()); }

memory::Ledger& Engine::host_ledger() const { return memory::host_ledger_of(device.type()); }

void Engine::weights_changed() const {
  if (!publishes_weights) return;
  for (nn::Unit* unit : units) exec::copy_weights_from_home(*unit);
}

void Engine::drop_gradients() const {
  for (const optim::NamedTensor& parameter : parameters) parameter.tensor.mutable_grad().reset();
  for (nn::Unit* unit : units)
    for (nn::Parameter* parameter : unit->parameters()) parameter->value.mutable_grad().reset();
}

Update Engine::step(const std::function<void()>& run_micro_batches, const UpdateOptions& options,
                    optim::LossScaler& scaler) {
  if (in_backward != nullptr) {
    double factor = 1;
    if (options.max_norm && *options.max_norm > 0) {
      in_backward->start_measuring();
      run_micro_batches();
      factor = clip_factor(in_backward->gradient_norm(), options.max_norm);
    }
    optimizer->begin_step();
    in_backward->start_updating({.lr = options.lr, .gradient_scale = factor});
    run_micro_batches();
    return {.grad_norm = in_backward->gradient_norm()};
  }
  run_micro_batches();
  const memory::PhaseGuard phase(memory::Phase::Step);
  const double scaled_norm = optim::gradient_norm(parameters);
  const double unscale = 1.0 / scaler.scale();
  Update update{.grad_norm = scaled_norm * unscale, .happened = scaler.update(scaled_norm)};
  if (!update.happened) return update;
  const memory::HostGuard host(updates_on_host);
  optimizer->step({.lr = options.lr,
                   .gradient_scale = unscale * clip_factor(update.grad_norm, options.max_norm)});
  weights_changed();
  return update;
}

Engine make_engine(models::Model& model, const config::Recipe& recipe, at::Device device,
                   int64_t max_seqlen) {
  Engine engine{.precision = nn::parse_precision(recipe.precision), .device = device};
  engine.units = model.units();
  engine.updates_on_host = recipe.optimizer_offload != "none";
  engine.publishes_weights = engine.updates_on_host && !recipe.weight_streaming;
  allocate_parameters(model, recipe, engine);
  model.prepare(device, max_seqlen);
  {
    const memory::HostGuard host(engine.updates_on_host);
    engine.optimizer = optim::make_optimizer(recipe.optimizer, engine.parameters, recipe.seed);
  }
  auto policies = make_policies(recipe, engine);
  engine.executor =
      std::make_unique<exec::Executor>(engine.units, std::move(policies), engine.ledger());
  return engine;
}

}  // namespace snug::setup
