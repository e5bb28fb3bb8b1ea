// SPDX-License-Identifier: Apache-2.0
#include "core/optim/algorithms.h"

#include "core/kernels/optimizers.h"
#include "core/memory/guards.h"
#include "core/ops/device/cuda.h"
#include "core/optim/describe.h"

namespace snug::optim {

Sgd::Sgd(const recipe::OptimizerOptions& options, std::vector<NamedTensor> parameters,
         uint64_t seed)
    : Optimizer(options, std::move(parameters), seed) {
  if (options_.momentum == 0) return;
  const memory::CategoryGuard category(memory::Category::Optimizer);
  for (const NamedTensor& parameter : parameters_)
    momentum_.push_back(zero_state(parameter.tensor, state_type(parameter.tensor)));
}

void Sgd::append_states(size_t parameter, std::vector<NamedTensor>& all) const {
  if (!momentum_.empty())
    all.push_back({parameters_[parameter].name + ".momentum_buffer", momentum_[parameter]});
}

void Sgd::update_range(Range range, const StepOptions& step) {
  using Entry = kernels::SgdTensor;
  const auto list = described<Entry>(range, [&](size_t i, Entry& entry) {
    if (momentum_.empty()) return;
    entry.momentum_buffer = ops::write_pointer(momentum_[i]);
    entry.state_type = ops::to_scalar(momentum_[i].scalar_type());
  });
  if (list.empty()) return;
  const kernels::SgdOptions options{.lr = step.lr,
                                    .momentum = options_.momentum,
                                    .weight_decay = options_.weight_decay,
                                    .nesterov = options_.nesterov,
                                    .first_step = num_steps_ == 1,
                                    .step = num_steps_,
                                    .grad_scale = static_cast<float>(step.gradient_scale),
                                    .stochastic_rounding = options_.stochastic_rounding,
                                    .seed = seed_};
  ops::run_on(
      parameters_.front().tensor, [&] { kernels::cpu::sgd_step(list, options); },
      [&] { ops::cuda::sgd_step(list, options); });
}

}  // namespace snug::optim
