// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/executor.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/trace.h"
#include "core/memory/guards.h"
#include "core/nn/objective.h"
#include "core/ops/device/host_waits.h"
#include "engine/exec/backward.h"
#include "engine/exec/pipeline.h"
#include "engine/exec/stage_links.h"

namespace snug::exec {
namespace {

// The state without its autograd graph; with `wants_gradient` its floating-point tensors are leaves
// that collect a gradient.
nn::State detach(const nn::State& state, bool wants_gradient) {
  nn::State result;
  for (const auto& [name, tensor] : state.entries()) {
    at::Tensor cut = tensor.detach();
    if (wants_gradient && cut.is_floating_point()) cut.set_requires_grad(true);
    result.set(name, std::move(cut));
  }
  return result;
}

// Whether the next unit's input needs a gradient for this output: not before the first trained
// unit, and for a tensor that the unit passes through unchanged only if its input needed one.
bool wants_gradient(const UnitRun& run, const at::Tensor& output) {
  if (run.index < run.first_trained) return false;
  for (const auto& [name, input] : run.input.entries())
    if (input.is_same(output)) return input.requires_grad();
  return output.is_floating_point();
}

// The unit's output, cut from its graph, as the next unit's input.
nn::State next_input(const UnitRun& run, const nn::State& output) {
  nn::State result;
  for (const auto& [name, tensor] : output.entries()) {
    at::Tensor cut = tensor.detach();
    if (wants_gradient(run, tensor)) cut.set_requires_grad(true);
    result.set(name, std::move(cut));
  }
  return result;
}

bool has_trained(nn::Unit* unit) {
  const auto parameters = unit->parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const nn::Parameter* parameter) { return parameter->trained; });
}

double first_of(const Sums& sums) { return sums.empty() ? 0.0 : sums.front(); }

nn::State take_gradients(nn::State& input) {
  nn::State gradients;
  for (auto& [name, tensor] : input.entries()) {
    if (!tensor.grad().defined()) continue;
    gradients.set(name, tensor.grad());
    tensor.mutable_grad().reset();
  }
  return gradients;
}

}  // namespace

// Runs a pass; if it throws, policies and links release what they hold for it.
template <class Run>
auto Executor::guarded(const Run& run) {
  try {
    return run();
  } catch (...) {
    for (const auto& policy : policies_) policy->abandon();
    if (links_ != nullptr) links_->abandon();
    throw;
  }
}

Executor::Executor(std::vector<nn::Unit*> units, Policies policies, memory::Ledger& ledger)
    : Executor(std::move(units), std::move(policies), ledger, {}, nullptr) {}

Executor::Executor(std::vector<nn::Unit*> units, Policies policies, memory::Ledger& ledger,
                   std::vector<UnitRange> ranges, std::unique_ptr<StageLinks> links)
    : units_(std::move(units)),
      policies_(std::move(policies)),
      ledger_(ledger),
      ranges_(std::move(ranges)),
      links_(std::move(links)) {
  for (nn::Unit* unit : units_) {
    ledger_ids_.push_back(memory::unit_id(unit->name()));
    trains_.push_back(has_trained(unit));
  }
  if (ranges_.empty()) ranges_.push_back({.begin = 0, .end = std::ssize(units_)});
}

Executor::~Executor() = default;

std::vector<nn::Parameter*> Executor::parameters() const {
  std::vector<nn::Parameter*> all;
  for (nn::Unit* unit : units_)
    for (nn::Parameter* parameter : unit->parameters()) all.push_back(parameter);
  return all;
}

at::Device Executor::device() const { return parameters().front()->value.device(); }

int64_t Executor::first_trained(const UnitRange& range) const {
  if (range.gradient_leaves) return range.begin;
  const auto first = std::find(trains_.begin() + range.begin, trains_.begin() + range.end, true);
  return first - trains_.begin();
}

bool Executor::has_backward(const UnitRange& range) const {
  return first_trained(range) < range.end;
}

double Executor::forward_backward(const nn::Batch& batch, const nn::Pass& pass) {
  const auto make = [&](int64_t number) -> MicroBatch { return {batch, pass, number}; };
  return first_of(forward_backward({.count = 1, .make = make}).front());
}

std::vector<Sums> Executor::forward_backward(const MicroBatches& micro_batches) {
  // A micro-batch that cannot be made ends the step too, amid what others have left for it.
  return guarded([&] {
    if (links_ != nullptr) return Pipeline(*this, *links_, forward_done_).run(micro_batches);
    std::vector<Sums> losses;
    for (int64_t i = 0; i < micro_batches.count; ++i)
      losses.push_back(run_micro_batch(micro_batches.make(i)));
    return losses;
  });
}

void Executor::record_passes() { recorded_ = std::make_unique<RecordedPasses>(parameters()); }

Sums Executor::run_micro_batch(const MicroBatch& micro_batch) {
  if (recorded_ == nullptr) return ops::read_numbers(run_pass(micro_batch));
  // A pass that is recorded and fails may run again, so that policies release what they hold for
  // it.
  return ops::read_numbers(recorded_->run(micro_batch, [this](const MicroBatch& own) {
    return guarded([&] { return run_pass(own); });
  }));
}

// The objective, on the device.
at::Tensor Executor::run_pass(const MicroBatch& micro_batch) {
  Flight flight;
  forward(flight, ranges_.front(), {}, micro_batch);
  if (forward_done_) forward_done_();
  backward(flight, begin_backward(flight, micro_batch.pass), micro_batch);
  return flight.objective;
}

nn::State Executor::forward(Flight& flight, const UnitRange& range, nn::State state,
                            const MicroBatch& micro_batch) {
  nn::State input = detach(state, range.gradient_leaves);
  for (int64_t i = range.begin; i < range.end; ++i) {
    UnitRun run = new_run(i, range, micro_batch);
    run.input = std::move(input);
    state = run_forward(run, micro_batch);
    input = next_input(run, state);
    if (run.training) flight.runs.push_back(std::move(run));
  }
  if (range.ends_model) flight.objective = state.at(nn::kObjective);
  return state;
}

nn::State Executor::begin_backward(const Flight& flight, const nn::Pass& pass) {
  nn::State gradients;
  gradients.set(nn::kObjective, nn::objective_of(pass).start_gradient(flight.objective, pass));
  return gradients;
}

// The host waits for the device here.
Sums Executor::value_of(const Flight& flight) { return ops::read_numbers(flight.objective); }

nn::State Executor::backward(Flight& flight, nn::State gradients, const MicroBatch& micro_batch) {
  while (!flight.runs.empty()) {
    gradients = run_backward(flight.runs.back(), std::move(gradients), micro_batch);
    flight.runs.pop_back();
  }
  for (auto p = policies_.rbegin(); p != policies_.rend(); ++p) (*p)->after_micro_batch();
  return gradients;
}

UnitRun Executor::new_run(int64_t index, const UnitRange& range,
                          const MicroBatch& micro_batch) const {
  const int64_t first = first_trained(range);
  return {.unit = units_[static_cast<size_t>(index)],
          .index = index,
          .first_trained = first,
          .range = range,
          .micro_batch = micro_batch.number,
          .pass = &micro_batch.pass,
          .input = {},
          .output = {},
          .input_gradients = {},
          .training = index >= first,
          .record = index >= first};
}

nn::State Executor::run_forward(UnitRun& run, const MicroBatch& micro_batch) {
  const memory::UnitGuard unit(ledger_ids_[static_cast<size_t>(run.index)]);
  const memory::PhaseGuard phase(memory::Phase::Forward);
  const trace::Timed timed(trace::Track::Computation, "forward", run.unit->name());
  for (const auto& policy : policies_) policy->before_forward(run);
  const uint64_t start = ledger_.serial();
  {
    const at::AutoGradMode mode(run.record);
    run.output = run.unit->forward(run.input, micro_batch.batch, micro_batch.pass);
  }
  // Whatever is still allocated after the unit's forward is kept for its backward.
  ledger_.retag_since(start, memory::Category::Activations);
  for (const auto& policy : policies_) policy->after_forward(run);
  nn::State result = run.output;
  if (!run.record) run.output = {};
  return result;
}

nn::State Executor::run_backward(UnitRun& run, nn::State gradients, const MicroBatch& micro_batch) {
  const memory::UnitGuard unit(ledger_ids_[static_cast<size_t>(run.index)]);
  const memory::PhaseGuard phase(memory::Phase::Backward);
  const trace::Timed timed(trace::Track::Computation, "backward", run.unit->name());
  for (auto p = policies_.rbegin(); p != policies_.rend(); ++p) (*p)->before_backward(run);
  if (!run.record) {
    const trace::Timed again(trace::Track::Computation, "recompute", run.unit->name());
    const at::AutoGradMode mode(true);
    run.output = run.unit->forward(run.input, micro_batch.batch, micro_batch.pass);
  }
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> output_gradients;
  for (auto& [name, gradient] : gradients.entries()) {
    const at::Tensor& output = run.output.at(name);
    // The first trained unit may pass a frozen unit's output through; it needs no gradient.
    if (!output.requires_grad()) continue;
    outputs.push_back(output);
    output_gradients.push_back(std::move(gradient));
  }
  run.output = {};
  exec::backward(outputs, std::move(output_gradients));
  outputs.clear();
  for (const nn::Parameter* parameter : run.unit->parameters())
    memory::retag(parameter->value.grad(), memory::Category::Gradients);
  run.input_gradients = take_gradients(run.input);
  run.input = {};
  for (auto p = policies_.rbegin(); p != policies_.rend(); ++p) (*p)->after_backward(run);
  return std::move(run.input_gradients);
}

nn::State Executor::infer(const nn::Batch& batch, const nn::Pass& pass) {
  const at::NoGradGuard no_gradients;
  const memory::PhaseGuard phase(memory::Phase::Evaluate);
  const MicroBatch micro_batch{batch, pass};
  if (links_ != nullptr)
    return links_->pass_through(micro_batch, [&](int64_t chunk, nn::State state) {
      return infer(ranges_[static_cast<size_t>(chunk)], std::move(state), micro_batch);
    });
  return infer(ranges_.front(), {}, micro_batch);
}

nn::State Executor::infer(const UnitRange& range, nn::State state, const MicroBatch& micro_batch) {
  for (int64_t i = range.begin; i < range.end; ++i) {
    const memory::UnitGuard unit(ledger_ids_[static_cast<size_t>(i)]);
    UnitRun run = new_run(i, range, micro_batch);
    run.input = std::move(state);
    run.training = false;
    run.record = false;
    for (const auto& policy : policies_) policy->before_forward(run);
    state = run.unit->forward(run.input, micro_batch.batch, micro_batch.pass);
    for (const auto& policy : policies_) policy->after_forward(run);
  }
  return state;
}

Sums Executor::sums(const nn::Batch& batch, const nn::Pass& pass) {
  return guarded([&] {
    const nn::State state = infer(batch, pass);
    return state.has(nn::kObjective) ? ops::read_numbers(state.at(nn::kObjective)) : Sums{};
  });
}

double Executor::objective(const nn::Batch& batch, const nn::Pass& pass) {
  return first_of(sums(batch, pass));
}

at::Tensor Executor::last_logits(const nn::Batch& batch, at::ScalarType compute) {
  const nn::Pass pass{.output = nn::Output::LastLogits, .compute = compute};
  nn::State state = guarded([&] { return infer(batch, pass); });
  if (batch.cache != nullptr)
    batch.cache->advance(batch.input_ids.size(0) / batch.cache->num_sequences());
  return links_ != nullptr ? links_->share_logits(state, batch) : state.at("logits");
}

}  // namespace snug::exec
