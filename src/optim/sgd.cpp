// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd.h"

#include <ATen/ops/zeros.h>

#include "kernels/cpu/sgd.h"
#include "memory/guards.h"
#include "ops/cuda.h"
#include "ops/device.h"

namespace snug::optim {

Sgd::Sgd(const config::OptimizerOptions& options, std::vector<NamedTensor> parameters)
    : Optimizer(std::move(parameters)), options_(options) {
  if (options_.momentum == 0) return;
  const memory::CategoryGuard category(memory::Category::Optimizer);
  for (const NamedTensor& parameter : parameters_) {
    const at::ScalarType type =
        parameter.tensor.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat;
    momentum_.push_back(at::zeros(parameter.tensor.sizes(),
                                  parameter.tensor.options().dtype(type).requires_grad(false)));
  }
}

std::vector<NamedTensor> Sgd::states() {
  std::vector<NamedTensor> all;
  for (size_t i = 0; i < momentum_.size(); ++i)
    all.push_back({parameters_[i].name + ".momentum_buffer", momentum_[i]});
  return all;
}

void Sgd::update(const StepOptions& step) {
  std::vector<kernels::cpu::SgdTensor> list;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined() || parameter.is_meta()) continue;
    kernels::cpu::SgdTensor entry{.count = parameter.numel(),
                                  .param = parameter.mutable_data_ptr(),
                                  .grad = gradient.const_data_ptr(),
                                  .param_type = ops::to_scalar(parameter.scalar_type()),
                                  .grad_type = ops::to_scalar(gradient.scalar_type()),
                                  .tensor_id = i};
    if (!momentum_.empty()) {
      entry.momentum_buffer = momentum_[i].mutable_data_ptr();
      entry.state_type = ops::to_scalar(momentum_[i].scalar_type());
    }
    list.push_back(entry);
  }
  if (list.empty()) return;
  const kernels::cpu::SgdOptions options{.lr = step.lr,
                                         .momentum = options_.momentum,
                                         .weight_decay = options_.weight_decay,
                                         .nesterov = options_.nesterov,
                                         .first_step = num_steps_ == 1,
                                         .step = num_steps_,
                                         .grad_scale = static_cast<float>(step.gradient_scale)};
  ops::run_on(
      parameters_.front().tensor, [&] { kernels::cpu::sgd_step(list, options); },
      [&] { ops::cuda::sgd_step(list, options); });
}

}  // namespace snug::optim
