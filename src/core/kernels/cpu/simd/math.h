// exp, square root, SiLU and the normal distribution, a vector at a time, for every input:
// NaN stays NaN, overflow is infinity, underflow is 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kernels/cpu/simd/loops.h"

namespace snug::kernels::cpu {
namespace {

// Both let a NaN in `x` through.
SNUG_INLINE F at_most(F x, float limit) { return x > limit ? broadcast(limit) : x; }
SNUG_INLINE F at_least(F x, float limit) { return x < limit ? broadcast(limit) : x; }

// A template, so that the branches for other widths are not compiled.
template <int W = kLanes>
SNUG_INLINE typename VectorOf<W>::F square_root(typename VectorOf<W>::F x) {
#ifdef __AVX512F__
  if constexpr (W == 16) return (typename VectorOf<W>::F)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);
#endif
#ifdef __AVX__
  if constexpr (W == 8) return (typename VectorOf<W>::F)_mm256_sqrt_ps((__m256)x);
#endif
  typename VectorOf<W>::F root;
  for (int k = 0; k < W; ++k) root[k] = __builtin_sqrtf(x[k]);
  return root;
}

// Within 1.2 ulp; 0 where the result would be below 2^-125. x = n ln 2 + r; exp(r) = 1 + r + r^2
// P(r), with P a Chebyshev fit on |r| <= ln 2 / 2 (relative error 8e-9). The factor is 2^(n-1),
// doubled in the end, since 2^n itself may be beyond the range where the result is not.
SNUG_INLINE F exp_any(F x) {
  const F bounded = at_most(x, 89.f);
  const F magic = broadcast(0x1.8p23f);  // adding it leaves the rounded integer in the low bits
  const F shifted = bounded * 0x1.715476p0f + magic;
  const F n = shifted - magic;
  const F r = (bounded - n * 0x1.62e400p-1f) - n * 0x1.7f7d1cp-20f;
  F p = broadcast(1.3926250394e-3f);
  p = p * r + 8.3632329479e-3f;
  p = p * r + 4.1666552424e-2f;
  p = p * r + 1.6666576266e-1f;
  p = p * r + 0.5f;
  p = (p * r) * r + r + 1.f;
  const F power = (F)(((U)shifted << 23) + (126u << 23));
  const F half = p * power;
  return x < -86.64f ? F{} : half + half;
}

// exp(-x^2 / 2), which both the normal distribution and its density need.
SNUG_INLINE F bell(F x) { return exp_any(x * x * -0.5f); }

// The standard normal distribution function, to 4e-7 + 1e-7 x^2 relative.
// erfc(z) = exp(-z^2) t Q(t), t = 1 / (1 + 0.4 z), z = |x| / sqrt 2; Q is a Chebyshev fit for z in
// [0, 11] (error 6e-9), beyond which exp(-z^2) is 0.
SNUG_INLINE F normal_cdf(F x, F bell_of_x) {
  const F z = (x < 0.f ? -x : x) * 0.70710678f;
  const F t = 1.f / (1.f + 0.4f * z);
  F q = broadcast(-0.031940490287f);
  q = q * t + 0.210029253477f;
  q = q * t - 0.525205814558f;
  q = q * t + 0.579936670305f;
  q = q * t - 0.308973008533f;
  q = q * t + 0.283878586346f;
  q = q * t + 0.126107263051f;
  q = q * t + 0.215570332260f;
  q = q * t + 0.224887715443f;
  q = q * t + 0.225709494510f;
  const F tail = 0.5f * bell_of_x * t * q;
  return x > 0.f ? 1.f - tail : tail;
}

struct ValueAndSlope {
  F value, slope;
};

// s = 1 / (1 + exp(-x)), and 1 - s without the cancellation of that difference. Where s is 0 the
// rest does not matter, as slopes hold their product.
struct Logistic {
  F share, rest;
};
SNUG_INLINE Logistic logistic(F x) {
  const F e = exp_any(-x);
  const F share = 1.f / (1.f + e);
  return {share, at_most(e, 1e38f) * share};
}

// x * logistic(x)
struct Silu {
  SNUG_INLINE F value(F x) { return x / (1.f + exp_any(-x)); }
  SNUG_INLINE ValueAndSlope both(F x) {
    const Logistic s = logistic(x);
    return {x * s.share, s.share * (1.f + x * s.rest)};
  }
};

}  // namespace
}  // namespace snug::kernels::cpu
