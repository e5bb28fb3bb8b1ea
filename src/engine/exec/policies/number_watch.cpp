// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/policies/number_watch.h"

#include <ATen/ops/aminmax.h>
#include <fmt/format.h>

#include <cmath>

#include "core/ops/device/host_waits.h"

namespace snug::exec {
namespace {

// The name of the first tensor with an element that is not finite.
std::optional<std::string> non_finite(const nn::State& state) {
  for (const auto& [name, tensor] : state.entries())
    if (!all_finite(tensor)) return name;
  return std::nullopt;
}

}  // namespace

// The least and the greatest element of a tensor with NaN are NaN.
bool all_finite(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta() || tensor.numel() == 0 || !tensor.is_floating_point())
    return true;
  const auto [low, high] = at::aminmax(tensor.detach());
  return std::isfinite(ops::read_number(low)) && std::isfinite(ops::read_number(high));
}

std::optional<NonFinite> NumberWatch::stop() {
  watches_ = false;
  return std::exchange(found_, std::nullopt);
}

void NumberWatch::found(const UnitRun& run, bool in_backward, std::string what) {
  found_ = NonFinite{.in_backward = in_backward,
                     .micro_batch = run.micro_batch,
                     .index = run.index,
                     .what = std::move(what)};
}

void NumberWatch::before_forward(UnitRun& run) {
  if (!looks()) return;
  input_is_finite_ = !non_finite(run.input);
  for (const nn::Parameter* parameter : run.unit->uses())
    if (!all_finite(parameter->value))
      return found(run, false, fmt::format("the weight {}", parameter->name));
}

// An input that is not finite was made by a unit of another process, which tells of it.
void NumberWatch::after_forward(UnitRun& run) {
  if (!looks() || !input_is_finite_) return;
  if (const auto name = non_finite(run.output))
    found(run, false, fmt::format("the forward output \"{}\" of {}", *name, run.unit->name()));
}

void NumberWatch::after_backward(UnitRun& run) {
  if (!looks()) return;
  for (const nn::Parameter* parameter : run.unit->parameters())
    if (!all_finite(parameter->value.grad()))
      return found(run, true, fmt::format("the gradient of {}", parameter->name));
  if (const auto name = non_finite(run.input_gradients))
    found(run, true, fmt::format("the gradient of \"{}\" from {}", *name, run.unit->name()));
}

}  // namespace snug::exec
