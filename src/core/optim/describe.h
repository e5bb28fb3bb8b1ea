// Optimizer::describe, for the files that call kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "core/memory/guards.h"
#include "core/ops/device/device.h"
#include "core/optim/optimizer.h"

namespace snug::optim {

template <class KernelTensor>
bool Optimizer::describe(size_t parameter, KernelTensor& description) const {
  const at::Tensor& weight = parameters_[parameter].tensor;
  const at::Tensor& gradient = weight.grad();
  if (!gradient.defined() || (weight.is_meta() && !ops::calls_cuda(weight))) return false;
  description.count = weight.numel();
  description.param = ops::write_pointer(weight);
  description.grad = ops::read_pointer(gradient);
  description.param_type = ops::to_scalar(weight.scalar_type());
  description.grad_type = ops::to_scalar(gradient.scalar_type());
  description.master = ops::write_pointer<float>(masters_[parameter]);
  description.tensor_id = parameter;
  return true;
}

template <class KernelTensor, class AddStates>
std::vector<KernelTensor> Optimizer::described(Range range, const AddStates& add_states) const {
  std::vector<KernelTensor> list;
  for (size_t i = range.first; i < range.last; ++i) {
    KernelTensor description;
    if (!describe(i, description)) continue;
    add_states(i, description);
    list.push_back(description);
  }
  return list;
}

// A zeroed state of the parameter's shape, tagged with the parameter's unit. A new file on disk
// reads as zeros and need not be written.
inline at::Tensor zero_state(const at::Tensor& parameter, at::ScalarType type) {
  const memory::UnitGuard unit(memory::unit_of(parameter));
  const auto options = parameter.options().dtype(type).requires_grad(false);
  return memory::current_tag.disk != nullptr ? at::empty(parameter.sizes(), options)
                                             : at::zeros(parameter.sizes(), options);
}

}  // namespace snug::optim
