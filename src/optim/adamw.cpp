// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw.h"

#include <ATen/ops/zeros.h>

#include "kernels/cpu/adamw.h"
#include "memory/guards.h"
#include "ops/cuda.h"
#include "ops/device.h"

namespace snug::optim {

AdamW::AdamW(const config::OptimizerOptions& options, std::vector<NamedTensor> parameters)
    : Optimizer(std::move(parameters)), options_(options) {
  const memory::CategoryGuard category(memory::Category::Optimizer);
  for (const NamedTensor& parameter : parameters_) {
    const at::ScalarType type =
        parameter.tensor.scalar_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat;
    const auto state_options = parameter.tensor.options().dtype(type).requires_grad(false);
    exp_avg_.push_back(at::zeros(parameter.tensor.sizes(), state_options));
    exp_avg_sq_.push_back(at::zeros(parameter.tensor.sizes(), state_options));
  }
}

std::vector<NamedTensor> AdamW::states() {
  std::vector<NamedTensor> all;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    all.push_back({parameters_[i].name + ".exp_avg", exp_avg_[i]});
    all.push_back({parameters_[i].name + ".exp_avg_sq", exp_avg_sq_[i]});
  }
  return all;
}

void AdamW::update(const StepOptions& step) {
  std::vector<kernels::cpu::AdamWTensor> list;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined() || parameter.is_meta()) continue;
    list.push_back({.count = parameter.numel(),
                    .param = parameter.mutable_data_ptr(),
                    .grad = gradient.const_data_ptr(),
                    .exp_avg = exp_avg_[i].mutable_data_ptr(),
                    .exp_avg_sq = exp_avg_sq_[i].mutable_data_ptr(),
                    .param_type = ops::to_scalar(parameter.scalar_type()),
                    .grad_type = ops::to_scalar(gradient.scalar_type()),
                    .state_type = ops::to_scalar(exp_avg_[i].scalar_type()),
                    .tensor_id = i});
  }
  if (list.empty()) return;
  const kernels::cpu::AdamWOptions options{.lr = step.lr,
                                           .beta1 = options_.beta1,
                                           .beta2 = options_.beta2,
                                           .eps = options_.eps,
                                           .weight_decay = options_.weight_decay,
                                           .step = num_steps_,
                                           .grad_scale = static_cast<float>(step.gradient_scale)};
  ops::run_on(
      parameters_.front().tensor, [&] { kernels::cpu::adamw_step(list, options); },
      [&] { ops::cuda::adamw_step(list, options); });
}

}  // namespace snug::optim
