// How far a model's probabilities of a token are from a teacher's, over the teacher's K most likely
// tokens and one more outcome, which stands for all others together. With p the teacher's and q the
// model's, and beta as in generalized knowledge distillation (Agarwal et al. 2023, equation 1):
//   beta 0          KL(p, q), forward
//   beta 1          KL(q, p), reverse
//   0 < beta < 1    beta KL(p, m) + (1 - beta) KL(q, m), m = beta p + (1 - beta) q:
//   Jensen-Shannon's
// Each is a sum over outcomes, and so is its gradient: with g the slope of an outcome's term by q,
// less what is the same for all outcomes, that by a logit is q (g - sum of q g over all outcomes).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define SNUG_HOST_DEVICE __host__ __device__
#else
#define SNUG_HOST_DEVICE
#endif

namespace snug::kernels {

// static: copies are compiled for several instruction sets.

// A GPU takes float for what is no sum: its double logarithm is a function of many registers.
SNUG_HOST_DEVICE static inline double log_of(double x) { return log(x); }
SNUG_HOST_DEVICE static inline float log_of(float x) { return logf(x); }

// An outcome's part of the divergence, and q times its slope, which stays finite as q nears 0.
template <class T>
struct DivergenceTerm {
  T value = 0;
  T weighted_slope = 0;
};

template <class T>
SNUG_HOST_DEVICE static inline DivergenceTerm<T> divergence_term(T p, T q, T beta) {
  constexpr T kLeast = static_cast<T>(1e-30);
  p = p < kLeast ? kLeast : p;
  q = q < kLeast ? kLeast : q;
  if (beta == 0) return {p * log_of(p / q), -p};
  if (beta == 1) {
    const T value = q * log_of(q / p);
    return {value, value};
  }
  const T mixed = beta * p + (1 - beta) * q, of_q = (1 - beta) * q * log_of(q / mixed);
  return {beta * p * log_of(p / mixed) + of_q, of_q};
}

// All others together: what is left of 1. Smaller than the error of a sum of float32 it is no
// number to divide by.
SNUG_HOST_DEVICE static inline double all_others(double sum) {
  constexpr double kLeast = 1e-6;
  return 1 - sum < kLeast ? kLeast : 1 - sum;
}

}  // namespace snug::kernels

#undef SNUG_HOST_DEVICE
