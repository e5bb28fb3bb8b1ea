// What AdamW's kernels multiply with, computed on the host once a step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "kernels/cpu/adamw.h"

namespace snug::kernels::cuda {

struct AdamWFactors {
  float decay;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;
  float rsqrt_correction;
  float eps;
  float grad_scale;
  bool stochastic;
};

inline AdamWFactors factors_of(const cpu::AdamWOptions& options) {
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(options.step));
  const double correction2 = 1 - std::pow(options.beta2, static_cast<double>(options.step));
  return {static_cast<float>(1 - options.lr * options.weight_decay),
          static_cast<float>(1 - options.beta1),
          static_cast<float>(options.beta2),
          static_cast<float>(1 - options.beta2),
          static_cast<float>(options.lr / correction1),
          static_cast<float>(1 / std::sqrt(correction2)),
          static_cast<float>(options.eps),
          options.grad_scale,
          options.stochastic_rounding};
}

}  // namespace snug::kernels::cuda
