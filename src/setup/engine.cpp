// SPDX-License-Identifier: Apache-2.0
#include "setup/engine.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "exec/policies/optimizer_in_backward.h"
#include "exec/policies/optimizer_offload.h"
#include "memory/disk_file.h"
#include "memory/placement.h"
#include "setup/adapters.h"
#include "setup/policies.h"

namespace snug::setup {
namespace {

// The formula of torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, const std::optional<double>& max_norm) {
  return max_norm && *max_norm > 0 ? std::min(1.0, *max_norm / (norm + 1e-6)) : 1.0;
}

// LoRA+ (Hayou et al. 2024): B, which starts at zero, learns faster than A.
std::vector<double> lr_factors(models::Model& model, const config::LoraOptions& lora) {
  std::vector<double> factors;
  for (const nn::Parameter* parameter : model.parameters())
    if (parameter->trained)
      factors.push_back(parameter->name.ends_with(".lora_B.weight") ? lora.plus_lr_ratio : 1);
  return factors;
}

// Weights that are updated on the host have a home there, in float32 where masters are asked for
// and have no place on disk.
void allocate_parameters(models::Model& model, const config::Recipe& recipe, Engine& engine) {
  const at::ScalarType type = engine.precision.parameters;
  const bool home_is_master = recipe.optimizer.master_weights && !recipe.offload_folder();
  for (nn::Unit* unit : model.units()) {
    const memory::UnitGuard tag(memory::unit_id(unit->name()));
    for (nn::Parameter* parameter : unit->parameters()) {
      parameter->allocate(engine.device, type);
      if (recipe.weight_streaming || (engine.updates_on_host && parameter->trained))
        parameter->allocate_home(home_is_master && parameter->trained ? at::kFloat : type);
      if (recipe.weight_streaming) memory::vacate(parameter->value);
      if (parameter->trained) engine.parameters.push_back({parameter->name, parameter->kept()});
    }
  }
}

std::unique_ptr<optim::Optimizer> make_optimizer(const config::Recipe& recipe,
                                                 const std::vector<optim::NamedTensor>& parameters,
                                                 memory::DiskFile* file) {
  const memory::HostGuard host(recipe.optimizer_offload != "none");
  const memory::DiskGuard disk(file);
  config::OptimizerOptions options = recipe.optimizer;
  // Of the weights that train, even where a float32 home is what the optimizer sees.
  if (options.state_dtype == "auto")
    options.state_dtype =
        nn::parse_precision(recipe.precision).parameters == at::kBFloat16 ? "bfloat16" : "float32";
  return optim::make_optimizer(options, parameters, recipe.seed);
}

// What the optimizer's states take in a file: they are made once on meta, and counted.
int64_t state_bytes_on_disk(const config::Recipe& recipe,
                            const std::vector<optim::NamedTensor>& parameters) {
  std::vector<optim::NamedTensor> planned;
  for (const auto& [name, tensor] : parameters)
    planned.push_back({name, at::empty(tensor.sizes(), tensor.options().device(at::kMeta))});
  memory::DiskFile counted;
  const memory::Ledger& ledger = memory::meta_disk_ledger();
  const int64_t before = ledger.allocated();
  const auto optimizer = make_optimizer(recipe, planned, &counted);
  return ledger.allocated() - before;
}

// Where the states go that a recipe wants on disk; null otherwise. A plan has no file.
std::unique_ptr<memory::DiskFile> open_disk_file(const config::Recipe& recipe,
                                                 const Engine& engine) {
  const std::optional<std::string> folder = recipe.offload_folder();
  if (!folder) return nullptr;
  if (engine.device.is_meta()) return std::make_unique<memory::DiskFile>();
  return std::make_unique<memory::DiskFile>(*folder,
                                            state_bytes_on_disk(recipe, engine.parameters));
}

}  // namespace

memory::Ledger& Engine::ledger() const { return memory::ledger_of(device.type()); }

memory::Ledger& Engine::host_ledger() const { return memory::host_ledger_of(device.type()); }
memory::Ledger& Engine::disk_ledger() const { return memory::disk_ledger_of(device.type()); }

void Engine::weights_changed() const {
  if (!publishes_weights) return;
  for (nn::Unit* unit : units) exec::copy_weights_from_home(*unit);
}

void Engine::finish_updates() const {
  if (delayed == nullptr) return;
  delayed->wait();
  weights_changed();
}

checkpoint::TrainingTensors Engine::training_tensors() const {
  checkpoint::TrainingTensors tensors{.parameters = parameters};
  if (delayed != nullptr) {
    delayed->wait();
    for (nn::Unit* unit : units)
      for (const nn::Parameter* parameter : unit->parameters())
        if (parameter->trained)
          tensors.late_weights.push_back({parameter->name, parameter->value.detach()});
  }
  tensors.optimizer_states = optimizer->states();
  return tensors;
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
  finish_updates();
  if (!update.happened) return update;
  const optim::StepOptions step{
      .lr = options.lr,
      .gradient_scale = unscale * clip_factor(update.grad_norm, options.max_norm)};
  if (delayed != nullptr) {
    delayed->start(step);
    return update;
  }
  const memory::HostGuard host(updates_on_host);
  optimizer->step(step);
  weights_changed();
  return update;
}

Engine make_engine(models::Model& model, const config::Recipe& recipe, at::Device device,
                   int64_t max_seqlen) {
  Engine engine{.precision = nn::parse_precision(recipe.precision), .device = device};
  add_adapters(model, recipe.lora);
  quantize_weights(model, recipe);
  engine.units = model.units();
  engine.updates_on_host = recipe.optimizer_offload != "none";
  engine.publishes_weights = engine.updates_on_host && !recipe.weight_streaming;
  allocate_parameters(model, recipe, engine);
  model.prepare(device, max_seqlen);
  const auto file = open_disk_file(recipe, engine);
  const auto updated = recipe.delayed_parameter_update
                           ? DelayedUpdate::aliases_of(engine.parameters)
                           : engine.parameters;
  engine.optimizer = make_optimizer(recipe, updated, file.get());
  engine.optimizer->set_lr_factors(lr_factors(model, recipe.lora));
  // On cpu both would share the same processors.
  if (recipe.delayed_parameter_update)
    engine.delayed = std::make_unique<DelayedUpdate>(*engine.optimizer, engine.parameters, updated,
                                                     device.is_cuda());
  engine.copies = std::make_unique<ops::CopyStream>(device);
  auto policies = make_policies(recipe, engine);
  engine.executor =
      std::make_unique<exec::Executor>(engine.units, std::move(policies), engine.ledger());
  return engine;
}

}  // namespace snug::setup
