// The gates of the gated delta rule and of Mamba 2's scan from what layers made of each token.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <utility>

namespace snug::ops {

// a, b (N, H) of any type; a_log, dt_bias (H) float32 -> both (N, H) float32:
//   g = -exp(a_log) * log(1 + exp(a + dt_bias)), the log of the decay
//   beta = 1 / (1 + exp(-b)), the rate at which the state learns
// a and b are what is kept for backward.
std::pair<at::Tensor, at::Tensor> delta_gates(const at::Tensor& a, const at::Tensor& b,
                                              const at::Tensor& a_log, const at::Tensor& dt_bias);

struct StepLimits {
  double least = 0, most = std::numeric_limits<double>::infinity();
};

// dt (N, H) of any type; a_log, dt_bias (H) float32 -> both (N, H) float32:
//   step = log(1 + exp(dt + dt_bias)) within the limits, and g = -exp(a_log) * step
// dt is what is kept for backward.
std::pair<at::Tensor, at::Tensor> mamba_gates(const at::Tensor& dt, const at::Tensor& a_log,
                                              const at::Tensor& dt_bias, const StepLimits& limits);

}  // namespace snug::ops
