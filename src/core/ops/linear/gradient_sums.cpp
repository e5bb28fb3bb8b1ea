// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear/gradient_sums.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "core/ops/device/device.h"
#include "core/ops/elementwise.h"

namespace snug::ops {

GradientSums::GradientSums(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    if (parameter.scalar_type() == at::kFloat) continue;
    const at::Tensor room =
        at::empty(parameter.sizes(), parameter.options().dtype(at::kFloat).requires_grad(false));
    sums_.push_back({.parameter = parameter,
                     .gradient = std::exchange(parameter.mutable_grad(), {}),
                     .slot = take_gradient_slot(parameter)});
    set_gradient_slot(parameter, room);
  }
}

GradientSums::~GradientSums() {
  for (Sum& sum : sums_) take(sum);
}

at::Tensor GradientSums::take(Sum& sum) {
  set_gradient_slot(sum.parameter, std::move(sum.slot));
  return std::exchange(sum.parameter.mutable_grad(), std::move(sum.gradient));
}

void GradientSums::finish() {
  while (!sums_.empty()) {
    Sum sum = std::move(sums_.back());
    sums_.pop_back();
    const at::Tensor total = take(sum);
    if (!total.defined()) continue;
    const GradientBuffer buffer = gradient_buffer(sum.parameter);
    if (buffer.fresh)
      ops::copy(buffer.tensor, total);
    else
      accumulate(buffer.tensor, total);
  }
}

}  // namespace snug::ops
