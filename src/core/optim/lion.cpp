// SPDX-License-Identifier: Apache-2.0
#include "core/optim/algorithms.h"

#include "core/kernels/optimizers.h"
#include "core/memory/guards.h"
#include "core/ops/device/cuda.h"
#include "core/optim/describe.h"

namespace snug::optim {

Lion::Lion(const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
           uint64_t seed)
    : Optimizer(options, std::move(parameters), seed) {
  const memory::CategoryGuard category(memory::Category::Optimizer);
  for (const NamedTensor& parameter : parameters_)
    exp_avg_.push_back(zero_state(parameter.tensor, state_type(parameter.tensor)));
}

void Lion::append_states(size_t parameter, std::vector<NamedTensor>& all) const {
  all.push_back({parameters_[parameter].name + ".exp_avg", exp_avg_[parameter]});
}

void Lion::update_range(Range range, const StepOptions& step) {
  using Entry = kernels::LionTensor;
  const auto list = described<Entry>(range, [&](size_t i, Entry& entry) {
    entry.exp_avg = ops::write_pointer(exp_avg_[i]);
    entry.state_type = ops::to_scalar(exp_avg_[i].scalar_type());
  });
  if (list.empty()) return;
  const kernels::LionOptions options{.lr = step.lr,
                                     .beta1 = options_.beta1,
                                     .beta2 = options_.beta2,
                                     .weight_decay = options_.weight_decay,
                                     .step = num_steps_,
                                     .grad_scale = static_cast<float>(step.gradient_scale),
                                     .stochastic_rounding = options_.stochastic_rounding,
                                     .seed = seed_};
  ops::run_on(
      parameters_.front().tensor, [&] { kernels::cpu::lion_step(list, options); },
      [&] { ops::cuda::lion_step(list, options); });
}

}  // namespace snug::optim
