// SPDX-License-Identifier: Apache-2.0
#include "exec/policies/optimizer_offload.h"

#include "memory/placement.h"
#include "ops/elementwise.h"

namespace snug::exec {
namespace {

void move_gradient_home(nn::Parameter& parameter) {
  at::Tensor& gradient = parameter.value.mutable_grad();
  if (!gradient.defined()) return;
  at::Tensor& home = parameter.home.mutable_grad();
  if (!home.defined()) {
    home = memory::empty_on_host(gradient.sizes(), gradient.scalar_type(), gradient.device(),
                                 memory::Category::Gradients);
    ops::copy(home, gradient);
  } else {
    ops::accumulate(home, gradient);
  }
  gradient.reset();
}

}  // namespace

void OptimizerOffload::after_backward(UnitRun& run) {
  for (nn::Parameter* parameter : run.unit->parameters()) move_gradient_home(*parameter);
}

void copy_weights_from_home(nn::Unit& unit) {
  for (nn::Parameter* parameter : unit.parameters())
    if (parameter->home.defined()) ops::copy(parameter->value.detach(), parameter->home);
}

}  // namespace snug::exec
