// The factors of an AdamW step that are the same for all elements, computed in double as in torch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "core/kernels/cpu/optimizers/adamw.h"
#include "core/kernels/cpu/simd/kernels.h"

namespace snug::kernels::cpu {

inline AdamWFactors adamw_factors(const AdamWOptions& options) {
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

}  // namespace snug::kernels::cpu
