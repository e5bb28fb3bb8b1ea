// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/optimizer_in_backward.h"

#include "base/trace.h"
#include "core/memory/guards.h"

namespace snug::exec {

OptimizerInBackward::OptimizerInBackward(optim::Optimizer& optimizer,
                                         std::vector<optim::NamedTensor> parameters,
                                         std::vector<bool> counted,
                                         std::vector<optim::Range> ranges, bool on_host,
                                         Publish publish)
    : optimizer_(optimizer),
      parameters_(std::move(parameters)),
      counted_(std::move(counted)),
      ranges_(std::move(ranges)),
      on_host_(on_host),
      publish_(std::move(publish)) {}

void OptimizerInBackward::begin_sweep(Sweep sweep, const optim::StepOptions& options) {
  updating_ = sweep == Sweep::Update;
  options_ = options;
  squares_ = {};
  if (updating_) optimizer_.begin_step();
}

void OptimizerInBackward::end_sweep() {
  if (updating_ && publish_.all) publish_.all();
}

// Reads states on disk ahead, while the unit's gradients are computed.
void OptimizerInBackward::before_backward(UnitRun& run) {
  if (updating_ && run.pass->last_micro_batch)
    optimizer_.read_ahead(ranges_[static_cast<size_t>(run.index)]);
}

void OptimizerInBackward::after_backward(UnitRun& run) {
  if (!run.pass->last_micro_batch) return;
  const memory::PhaseGuard phase(memory::Phase::Step);
  const optim::Range range = ranges_[static_cast<size_t>(run.index)];
  std::vector<at::Tensor> gradients;
  for (size_t i = range.first; i < range.last; ++i)
    if (counted_[i] && parameters_[i].tensor.grad().defined())
      gradients.push_back(parameters_[i].tensor.grad());
  squares_.add(gradients);
  gradients.clear();
  if (updating_) {
    const trace::Timed timed(trace::Track::Computation, "update", run.unit->name());
    const memory::HostGuard host(on_host_);
    optimizer_.update(range, options_);
  }
  for (size_t i = range.first; i < range.last; ++i) parameters_[i].tensor.mutable_grad().reset();
  if (updating_ && publish_.unit) publish_.unit(run.index);
}

}  // namespace snug::exec
