// How results are rounded: by chance, with the bits that core/kernels/cpu/simd/random_rounding.h
// draws; and after each operation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cuda/elements.cuh"

namespace snug::kernels::cuda {

__device__ inline uint32_t random_bits(uint64_t key, int64_t i) {
  const auto high = static_cast<uint32_t>(static_cast<uint64_t>(i) >> 32);
  uint32_t x = static_cast<uint32_t>(i);
  x ^= static_cast<uint32_t>(key) + high * 0x9e3779b9u;
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= (x >> 15) ^ static_cast<uint32_t>(key >> 32);
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

__device__ inline uint32_t more_bits(uint32_t random) {
  const uint32_t x = random * 0x9e3779b1u;
  return x ^ (x >> 15);
}

// Where `stochastic` and T is a bfloat16: rounded up or down by chance to what T can hold.
template <class T>
__device__ inline float rounded(float value, bool stochastic, uint32_t random);
template <>
__device__ inline float rounded<float>(float value, bool, uint32_t) {
  return value;
}
template <>
__device__ inline float rounded<F16>(float value, bool, uint32_t) {
  return value;
}
template <>
__device__ inline float rounded<BF16>(float value, bool stochastic, uint32_t random) {
  if (!stochastic || isnan(value)) return value;
  return __uint_as_float((__float_as_uint(value) + (random & 0xffffu)) & 0xffff0000u);
}

// A float that nvcc makes no fused multiply-add of: every operation is rounded by itself, whatever
// the compiler's flags. For formulas that must give the CPU's bits
// (core/kernels/optimizer_formulas.h, core/kernels/optimizers).
struct Unfused {
  float value;

  Unfused() = default;
  __device__ Unfused(float x) : value(x) {}  // NOLINT(google-explicit-constructor): a number is one
  friend __device__ Unfused operator+(Unfused a, Unfused b) { return __fadd_rn(a.value, b.value); }
  friend __device__ Unfused operator-(Unfused a, Unfused b) { return __fsub_rn(a.value, b.value); }
  friend __device__ Unfused operator*(Unfused a, Unfused b) { return __fmul_rn(a.value, b.value); }
  friend __device__ Unfused operator/(Unfused a, Unfused b) { return __fdiv_rn(a.value, b.value); }
};

__device__ inline Unfused square_root(Unfused x) { return __fsqrt_rn(x.value); }

}  // namespace snug::kernels::cuda
