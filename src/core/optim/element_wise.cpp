// SPDX-License-Identifier: Apache-2.0
#include "core/optim/element_wise.h"

#include "core/kernels/optimizers.h"
#include "core/ops/device/cuda.h"
#include "core/optim/algorithms.h"

namespace snug::optim {
namespace {

// The kernels made from the formula.
template <class Formula>
struct KernelLoop {
  static void check(const at::Tensor& /*parameter*/, const recipe::OptimizerOptions& /*options*/) {}
  static void run(const at::Tensor& parameter,
                  std::span<const kernels::ElementTensor<Formula::kStates>> tensors,
                  const kernels::ElementOptions& options) {
    ops::run_on(
        parameter, [&] { kernels::cpu::element_step<Formula>(tensors, options); },
        [&] { ops::cuda::element_step<Formula>(tensors, options); });
  }
};

}  // namespace

kernels::ElementOptions element_options(const recipe::OptimizerOptions& options,
                                        const StepOptions& step, int64_t num_steps, uint64_t seed) {
  return {.lr = step.lr,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .momentum = options.momentum,
          .weight_decay = options.weight_decay,
          .nesterov = options.nesterov,
          .first_step = num_steps == 1,
          .step = num_steps,
          .grad_scale = static_cast<float>(step.gradient_scale),
          .stochastic_rounding = options.stochastic_rounding,
          .seed = seed};
}

std::unique_ptr<Optimizer> make_element_wise(const recipe::OptimizerOptions& options,
                                             std::vector<NamedTensor> parameters, uint64_t seed) {
  switch (options.name.value()) {
#define SNUG_ELEMENT_WISE(Formula)                                                        \
  case recipe::OptimizerName::Formula:                                                    \
    return std::make_unique<ElementWise<kernels::Formula, KernelLoop<kernels::Formula>>>( \
        options, std::move(parameters), seed);
#include "core/kernels/optimizers/all.def"
#undef SNUG_ELEMENT_WISE
    default:
      throw InternalError(
          fmt::format("optimizer {} was not replaced by what it stands for", options.name));
  }
}

}  // namespace snug::optim
