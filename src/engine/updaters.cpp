// SPDX-License-Identifier: Apache-2.0
#include "engine/updaters.h"

#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/trace.h"
#include "core/memory/guards.h"
#include "engine/engine.h"

namespace snug::engine {

double UpdateAfterBackward::sum_of_squares() {
  add_up_common_gradients(engine_);
  return optim::gradient_sum_of_squares(engine_.counted_parameters());
}

void UpdateAfterBackward::update(const optim::StepOptions& options) {
  const trace::Timed timed(trace::Track::Computation, "update");
  const memory::HostGuard host(engine_.updates_on_host);
  engine_.optimizer->step(options);
  engine_.weights_changed();
}

std::vector<optim::NamedTensor> DelayedUpdate::aliases_of(
    const std::vector<optim::NamedTensor>& homes) {
  std::vector<optim::NamedTensor> aliases;
  for (const auto& [name, tensor] : homes) aliases.push_back({name, tensor.detach()});
  return aliases;
}

void DelayedUpdate::update(const optim::StepOptions& options) {
  SNUG_CHECK(!is_under_way(), "the update before has not been waited for");
  for (size_t i = 0; i < aliases_.size(); ++i) {
    at::Tensor& gradient = engine_.parameters[i].tensor.mutable_grad();
    aliases_[i].tensor.mutable_grad() = gradient;
    gradient.reset();
  }
  engine_.optimizer->begin_step();
  if (in_background_)
    running_ = std::async(std::launch::async, [this, options] { run(options); });
  else
    run(options);
}

// The ledger's tag and OpenMP's number of threads are per thread.
void DelayedUpdate::run(const optim::StepOptions& options) {
  at::init_num_threads();
  const trace::Timed timed(trace::Track::Computation, "update");
  const memory::PhaseGuard phase(memory::Phase::Step);
  const memory::HostGuard host;
  engine_.optimizer->update(engine_.optimizer->all(), options);
}

void DelayedUpdate::wait() {
  const auto free_gradients = [this] {
    for (const optim::NamedTensor& alias : aliases_) alias.tensor.mutable_grad().reset();
  };
  try {
    if (is_under_way()) running_.get();
  } catch (...) {
    free_gradients();
    throw;
  }
  free_gradients();
}

void DelayedUpdate::finish() {
  wait();
  engine_.weights_changed();
  engine_.copies->wait_for_all_on_host();  // the next update writes what they read
}

}  // namespace snug::engine
