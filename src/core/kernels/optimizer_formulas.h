// The element-wise update of each optimizer, shared by the CPU's vector kernels and the GPU's
// kernels. Both round after every operation (CPU files are compiled without contraction, the GPU
// uses the type in core/kernels/cuda/rounding.cuh), so a step has the same bits on both, and moving
// an optimizer to the host changes nothing. Optimizers are memory-bound; fused multiply-add would
// save no time. F is a float or a vector of floats. Internal linkage: files compiled for other
// instruction sets include this too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __CUDACC__
#define SNUG_FORMULA static __device__ __forceinline__
#else
#define SNUG_FORMULA static inline __attribute__((always_inline))
#endif

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

template <class F, class Factors>
SNUG_FORMULA F lion_direction(F m, F g, const Factors& f) {
  return m * f.beta1 + g * (1 - f.beta1);
}
template <class F, class Factors>
SNUG_FORMULA F lion_weight(F p, F sign, const Factors& f) {
  return p * f.decay - f.lr * sign;
}
template <class F, class Factors>
SNUG_FORMULA F lion_average(F m, F g, const Factors& f) {
  return m * f.beta2 + g * (1 - f.beta2);
}

template <class F, class Factors>
SNUG_FORMULA F sgd_gradient(F g, F p, const Factors& f) {
  return g + p * f.weight_decay;
}
// The momentum buffer after this step; `before` is ignored in the first step.
template <class F, class Factors>
SNUG_FORMULA F sgd_buffer(F g, F before, const Factors& f) {
  const F fresh = g * f.new_share;
  return f.first_step ? fresh : fresh + before * f.momentum;
}
template <class F, class Factors>
SNUG_FORMULA F sgd_direction(F g, F buffer, const Factors& f) {
  return f.nesterov ? g + buffer * f.momentum : buffer;
}
template <class F, class Factors>
SNUG_FORMULA F sgd_weight(F p, F direction, const Factors& f) {
  return p - direction * f.lr;
}

}  // namespace
}  // namespace snug::kernels

#undef SNUG_FORMULA
