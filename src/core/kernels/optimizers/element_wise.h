// What the steps of element-wise optimizers take. Such an optimizer is a formula: a struct in a
// file beside this one, named as its OptimizerName, with a line each in all.def and formulas.h. It
// has
//   kName               the recipe's word for it
//   kStates, kStateNames  how many numbers it keeps for an element (1 or 2), zero at first
//   Factors factors(options)  what is the same for all elements of a step, computed in double
//   update<Math>(p, g, states, factors)  one element: weight, gradient, states, all float32
// and, where they say something,
//   keeps_states(options)  whether it needs its states with these options
//   refuses(options)    null, or why it does not take them
// Vector and CUDA loops, which read, round and write, are made from it; they round after every
// operation, so that a step has the same bits on all. What update() calls must be SNUG_FORMULA too:
// nothing of a file compiled for other instruction sets may be there for the linker to merge.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/kernels/scalar.h"

#ifdef __CUDACC__
#define SNUG_FORMULA static __device__ __forceinline__
#else
#define SNUG_FORMULA static inline __attribute__((always_inline))
#endif

namespace snug::kernels {

template <int N>
struct ElementTensor {
  static_assert(N == 1 || N == 2, "further states need further random bits");
  int64_t count = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  void* states[N] = {};     // not read where they are not kept
  float* master = nullptr;  // optional float32 weights: read and updated, param is their rounding
  Scalar param_type = Scalar::F32;
  Scalar grad_type = Scalar::F32;
  Scalar state_type = Scalar::F32;  // F32 or BF16
  uint64_t tensor_id = 0;           // separates the random streams of stochastic rounding
};

struct ElementOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first_step = false;  // the states hold nothing yet
  int64_t step = 1;         // the first is 1
  float grad_scale = 1.0f;  // multiplies every gradient: clipping, loss unscaling
  // Rounds BF16 params (those without master) and states up or down with the probability that keeps
  // their mean. The random bits depend only on (seed, step, tensor_id, index).
  bool stochastic_rounding = false;
  uint64_t seed = 0;
  int num_threads = 0;
};

template <class Formula>
inline constexpr bool kMayKeepNone = requires(const ElementOptions& options) {
  Formula::keeps_states(options);
};

template <class Formula>
constexpr bool keeps_states(const ElementOptions& options) {
  if constexpr (kMayKeepNone<Formula>) return Formula::keeps_states(options);
  return true;
}

template <class Formula>
constexpr const char* refuses(const ElementOptions& options) {
  if constexpr (requires { Formula::refuses(options); }) return Formula::refuses(options);
  return nullptr;
}

// What its kernels are called.
template <class Formula>
inline const std::string kStepName = std::string(Formula::kName) + "_step";

template <class Formula>
struct ElementFactors : Formula::Factors {
  float grad_scale = 1;
  bool keeps_states = true;
  bool stochastic = false;
  uint64_t random_key = 0;  // of the tensor; set where it is read
};

}  // namespace snug::kernels
