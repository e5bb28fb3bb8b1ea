// AdamW's update of an element, shared by the CPU's vector kernels and the GPU's kernels, for
// moments of any kind. Both round after every operation (CPU files are compiled without
// contraction, the GPU uses the type in core/kernels/cuda/rounding.cuh), so a step has the same
// bits on both, and moving an optimizer to the host changes nothing. Optimizers are memory-bound;
// fused multiply-add would save no time. F is a float or a vector of floats. Internal linkage:
// files compiled for other instruction sets include this too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/optimizers/element_wise.h"

namespace snug::kernels {
namespace {

template <class F, class Factors>
SNUG_FORMULA void move_moments(F& m, F& v, F g, const Factors& f) {
  m = m + (g - m) * f.one_minus_beta1;
  v = v * f.beta2 + g * g * f.one_minus_beta2;
}
// `root`: square root of the second moment; both moments are those after this step.
template <class F, class Factors>
SNUG_FORMULA F adamw_weight(F p, F m, F root, const Factors& f) {
  return p * f.decay - f.step_size * m / (root * f.rsqrt_correction + f.eps);
}

}  // namespace
}  // namespace snug::kernels
