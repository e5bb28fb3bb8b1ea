// SPDX-License-Identifier: Apache-2.0
#include "engine/delayed_update.h"

#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/trace.h"
#include "core/memory/guards.h"

namespace snug::engine {

std::vector<optim::NamedTensor> DelayedUpdate::aliases_of(
    const std::vector<optim::NamedTensor>& homes) {
  std::vector<optim::NamedTensor> aliases;
  for (const auto& [name, tensor] : homes) aliases.push_back({name, tensor.detach()});
  return aliases;
}

void DelayedUpdate::start(const optim::StepOptions& options) {
  SNUG_CHECK(!is_under_way(), "the update before has not been waited for");
  for (size_t i = 0; i < homes_.size(); ++i) {
    aliases_[i].tensor.mutable_grad() = homes_[i].tensor.grad();
    homes_[i].tensor.mutable_grad().reset();
  }
  optimizer_.begin_step();
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
  optimizer_.update(optimizer_.all(), options);
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

}  // namespace snug::engine
