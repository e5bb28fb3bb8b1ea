// SPDX-License-Identifier: Apache-2.0
#include "exec/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "exec/backward.h"
#include "memory/guards.h"

namespace snug::exec {
namespace {

// Cuts the state from the graph it came from; floating tensors will collect this unit's gradient
// where an earlier unit wants it.
nn::State detach(const nn::State& state, bool wants_gradient) {
  nn::State result;
  for (const auto& [name, tensor] : state.entries()) {
    at::Tensor cut = tensor.detach();
    if (wants_gradient && cut.is_floating_point()) cut.set_requires_grad(true);
    result.set(name, std::move(cut));
  }
  return result;
}

size_t first_trained_of(const std::vector<nn::Unit*>& units) {
  const auto trains = [](nn::Unit* unit) {
    const auto parameters = unit->parameters();
    return std::any_of(parameters.begin(), parameters.end(),
                       [](const nn::Parameter* parameter) { return parameter->trained; });
  };
  return static_cast<size_t>(std::find_if(units.begin(), units.end(), trains) - units.begin());
}

nn::State take_gradients(nn::State& input) {
  nn::State gradients;
  for (auto& [name, tensor] : input.entries()) {
    if (!tensor.grad().defined()) continue;
    gradients.set(name, tensor.grad());
    tensor.mutable_grad().reset();
  }
  return gradients;
}

// Waits for the device that computes it.
double read_loss(const at::Tensor& loss) {
  return loss.is_meta() ? 0.0 : static_cast<double>(loss.item<float>());
}

}  // namespace

// Runs a pass; when it throws, the policies let go of what they hold for it.
template <class Run>
auto Executor::guarded(const Run& run) {
  try {
    return run();
  } catch (...) {
    for (const auto& policy : policies_) policy->abandon();
    throw;
  }
}

Executor::Executor(std::vector<nn::Unit*> units, std::vector<std::unique_ptr<Policy>> policies,
                   memory::Ledger& ledger)
    : units_(std::move(units)),
      policies_(std::move(policies)),
      first_trained_(first_trained_of(units_)),
      ledger_(ledger) {
  for (const nn::Unit* unit : units_) ledger_ids_.push_back(memory::unit_id(unit->name()));
}

std::vector<nn::Parameter*> Executor::parameters() const {
  std::vector<nn::Parameter*> all;
  for (nn::Unit* unit : units_)
    for (nn::Parameter* parameter : unit->parameters()) all.push_back(parameter);
  return all;
}

at::Device Executor::device() const { return parameters().front()->value.device(); }

double Executor::forward_backward(const nn::Batch& batch, const nn::Pass& pass) {
  return guarded([&] { return run_micro_batch(batch, pass); });
}

double Executor::run_micro_batch(const nn::Batch& batch, const nn::Pass& pass) {
  std::vector<UnitRun> runs(units_.size());
  nn::State state;
  for (size_t i = 0; i < units_.size(); ++i) {
    runs[i] = new_run(i, pass);
    runs[i].input = detach(state, i > first_trained_);
    state = run_forward(runs[i], batch, pass);
    if (i < first_trained_) runs[i] = {};
  }
  const at::Tensor loss = state.at("loss");
  nn::State gradients;
  gradients.set("loss", at::ones_like(loss));
  state = {};
  if (forward_done_) forward_done_();
  while (runs.size() > first_trained_) {
    gradients = run_backward(runs.back(), std::move(gradients), batch, pass);
    runs.pop_back();
  }
  for (auto p = policies_.rbegin(); p != policies_.rend(); ++p) (*p)->after_micro_batch();
  return read_loss(loss);
}

UnitRun Executor::new_run(size_t index, const nn::Pass& pass) const {
  return {.unit = units_[index],
          .index = static_cast<int64_t>(index),
          .num_units = static_cast<int64_t>(units_.size()),
          .first_trained = static_cast<int64_t>(first_trained_),
          .pass = &pass,
          .input = {},
          .output = {},
          .training = index >= first_trained_,
          .record = index >= first_trained_};
}

nn::State Executor::run_forward(UnitRun& run, const nn::Batch& batch, const nn::Pass& pass) {
  const memory::UnitGuard unit(ledger_ids_[static_cast<size_t>(run.index)]);
  const memory::PhaseGuard phase(memory::Phase::Forward);
  for (const auto& policy : policies_) policy->before_forward(run);
  const uint64_t start = ledger_.serial();
  {
    const at::AutoGradMode mode(run.record);
    run.output = run.unit->forward(run.input, batch, pass);
  }
  // Whatever outlives the unit's forward is kept for its backward.
  ledger_.retag_since(start, memory::Category::Activations);
  for (const auto& policy : policies_) policy->after_forward(run);
  nn::State result = run.output;
  if (!run.record) run.output = {};
  return result;
}

nn::State Executor::run_backward(UnitRun& run, nn::State gradients, const nn::Batch& batch,
                                 const nn::Pass& pass) {
  const memory::UnitGuard unit(ledger_ids_[static_cast<size_t>(run.index)]);
  const memory::PhaseGuard phase(memory::Phase::Backward);
  for (auto p = policies_.rbegin(); p != policies_.rend(); ++p) (*p)->before_backward(run);
  if (!run.record) {
    const at::AutoGradMode mode(true);
    run.output = run.unit->forward(run.input, batch, pass);
  }
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> output_gradients;
  for (auto& [name, gradient] : gradients.entries()) {
    const at::Tensor& output = run.output.at(name);
    // The first trained unit may hand on what units before it made, which wants no gradient.
    if (!output.requires_grad()) continue;
    outputs.push_back(output);
    output_gradients.push_back(std::move(gradient));
  }
  run.output = {};
  backward(outputs, std::move(output_gradients));
  outputs.clear();
  for (const nn::Parameter* parameter : run.unit->parameters())
    memory::retag(parameter->value.grad(), memory::Category::Gradients);
  nn::State input_gradients = take_gradients(run.input);
  run.input = {};
  for (auto p = policies_.rbegin(); p != policies_.rend(); ++p) (*p)->after_backward(run);
  return input_gradients;
}

nn::State Executor::infer(const nn::Batch& batch, const nn::Pass& pass) {
  const at::NoGradGuard no_gradients;
  const memory::PhaseGuard phase(memory::Phase::Evaluate);
  nn::State state;
  for (size_t i = 0; i < units_.size(); ++i) {
    const memory::UnitGuard unit(ledger_ids_[i]);
    UnitRun run = new_run(i, pass);
    run.input = std::move(state);
    run.training = false;
    run.record = false;
    for (const auto& policy : policies_) policy->before_forward(run);
    state = run.unit->forward(run.input, batch, pass);
    for (const auto& policy : policies_) policy->after_forward(run);
  }
  return state;
}

double Executor::loss(const nn::Batch& batch, const nn::Pass& pass) {
  return guarded([&] { return read_loss(infer(batch, pass).at("loss")); });
}

at::Tensor Executor::last_logits(const nn::Batch& batch, at::ScalarType compute) {
  const nn::Pass pass{.output = nn::Output::LastLogits, .compute = compute};
  nn::State state = guarded([&] { return infer(batch, pass); });
  if (batch.cache != nullptr)
    batch.cache->advance(batch.input_ids.size(0) / batch.cache->num_sequences());
  return state.at("logits");
}

}  // namespace snug::exec
