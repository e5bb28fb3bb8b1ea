// A float that nvcc makes no fused multiply-add of: every operation is rounded by itself, whatever
// the compiler's flags. For formulas that must give the CPU's bits
// (core/kernels/optimizer_formulas.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace snug::kernels::cuda {

struct Unfused {
  float value;

  __device__ Unfused(float x) : value(x) {}  // NOLINT(google-explicit-constructor): a number is one
  friend __device__ Unfused operator+(Unfused a, Unfused b) { return __fadd_rn(a.value, b.value); }
  friend __device__ Unfused operator-(Unfused a, Unfused b) { return __fsub_rn(a.value, b.value); }
  friend __device__ Unfused operator*(Unfused a, Unfused b) { return __fmul_rn(a.value, b.value); }
  friend __device__ Unfused operator/(Unfused a, Unfused b) { return __fdiv_rn(a.value, b.value); }
};

__device__ inline Unfused square_root(Unfused x) { return __fsqrt_rn(x.value); }

}  // namespace snug::kernels::cuda
