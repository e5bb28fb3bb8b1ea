// SPDX-License-Identifier: Apache-2.0
#include "core/optim/algorithms.h"

#include "core/memory/guards.h"
#include "core/ops/device/cuda.h"
#include "core/optim/describe.h"

namespace snug::optim {

kernels::AdamWOptions adamw_options(const recipe::OptimizerOptions& options,
                                    const StepOptions& step, int64_t num_steps, uint64_t seed) {
  return {.lr = step.lr,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .step = num_steps,
          .grad_scale = static_cast<float>(step.gradient_scale),
          .stochastic_rounding = options.stochastic_rounding,
          .seed = seed};
}

AdamW::AdamW(const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
             uint64_t seed)
    : Optimizer(options, std::move(parameters), seed) {
  const memory::CategoryGuard category(memory::Category::Optimizer);
  for (const NamedTensor& parameter : parameters_) {
    const at::ScalarType type = state_type(parameter.tensor);
    exp_avg_.push_back(zero_state(parameter.tensor, type));
    exp_avg_sq_.push_back(zero_state(parameter.tensor, type));
  }
}

void AdamW::append_states(size_t parameter, std::vector<NamedTensor>& all) const {
  all.push_back({parameters_[parameter].name + ".exp_avg", exp_avg_[parameter]});
  all.push_back({parameters_[parameter].name + ".exp_avg_sq", exp_avg_sq_[parameter]});
}

void AdamW::update_range(Range range, const StepOptions& step) {
  using Entry = kernels::AdamWTensor;
  const auto list = described<Entry>(range, [&](size_t i, Entry& entry) {
    entry.exp_avg = ops::write_pointer(exp_avg_[i]);
    entry.exp_avg_sq = ops::write_pointer(exp_avg_sq_[i]);
    entry.state_type = ops::to_scalar(exp_avg_[i].scalar_type());
  });
  if (list.empty()) return;
  const kernels::AdamWOptions options = adamw_options(options_, step, num_steps_, seed_);
  ops::run_on(
      parameters_.front().tensor, [&] { kernels::cpu::adamw_step(list, options); },
      [&] { ops::cuda::adamw_step(list, options); });
}

}  // namespace snug::optim
