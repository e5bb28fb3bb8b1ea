// The factors of a step that are the same for all elements, computed in double as in torch, and
// what steps ask of their options and tensors, for the CPU and the GPU alike.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <span>

#include "base/error.h"
#include "core/kernels/cpu/optimizers/adamw.h"
#include "core/kernels/cpu/optimizers/lion.h"
#include "core/kernels/cpu/optimizers/sgd.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {

template <class Tensor>
void check_states(std::span<const Tensor> tensors, const char* optimizer) {
  for (const Tensor& tensor : tensors)
    SNUG_CHECK(tensor.state_type != Scalar::F16, "{}'s states are float32 or bfloat16", optimizer);
}

inline AdamWFactors adamw_factors(const AdamWOptions& options) {
  SNUG_CHECK(options.step >= 1, "AdamW step {}; the first is 1", options.step);
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(options.step));
  const double correction2 = 1 - std::pow(options.beta2, static_cast<double>(options.step));
  return {.decay = static_cast<float>(1 - options.lr * options.weight_decay),
          .one_minus_beta1 = static_cast<float>(1 - options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .one_minus_beta2 = static_cast<float>(1 - options.beta2),
          .step_size = static_cast<float>(options.lr / correction1),
          .rsqrt_correction = static_cast<float>(1 / std::sqrt(correction2)),
          .eps = static_cast<float>(options.eps),
          .grad_scale = options.grad_scale,
          .stochastic = options.stochastic_rounding};
}

inline LionFactors lion_factors(const LionOptions& options) {
  return {.lr = static_cast<float>(options.lr),
          .decay = static_cast<float>(1 - options.lr * options.weight_decay),
          .beta1 = static_cast<float>(options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .grad_scale = options.grad_scale,
          .stochastic = options.stochastic_rounding};
}

inline SgdFactors sgd_factors(std::span<const SgdTensor> tensors, const SgdOptions& options) {
  SNUG_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
             "Nesterov needs momentum above 0 (is {}) and no dampening (is {})", options.momentum,
             options.dampening);
  for (const SgdTensor& tensor : tensors)
    SNUG_CHECK(options.momentum == 0 || tensor.momentum_buffer != nullptr,
               "SGD with momentum {} needs a momentum buffer for each tensor", options.momentum);
  return {.lr = static_cast<float>(options.lr),
          .momentum = static_cast<float>(options.momentum),
          .new_share = options.first_step ? 1.0f : static_cast<float>(1 - options.dampening),
          .weight_decay = static_cast<float>(options.weight_decay),
          .grad_scale = options.grad_scale,
          .nesterov = options.nesterov,
          .first_step = options.first_step,
          .stochastic = options.stochastic_rounding};
}

}  // namespace snug::kernels::cpu
