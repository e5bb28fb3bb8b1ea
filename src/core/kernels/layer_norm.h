// LayerNorm over rows of (N, D), alone or fused with the residual addition before it.
//   h = x + residual (rounded once to `type`; without residual h = x)
//   rstd = 1 / sqrt(mean((h - mean(h))^2) + eps),  y = weight * (h - mean(h)) * rstd + bias
// Sums are float32, the deviations' taken from the row's mean; y is rounded once. The gradients of
// weight and bias are summed over fixed blocks of rows, so that every thread count gives the same
// bits. Per element: forward reads x (and residual) and writes y (and h); backward reads dy, x (and
// d_residual) and writes dx.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"
#include "core/kernels/vector_gradient.h"

namespace snug::kernels {

struct LayerNormForward {
  Scalar type = Scalar::F32;         // of x, residual, sum, y
  Scalar weight_type = Scalar::F32;  // of weight and bias
  int64_t rows = 0;                  // N
  int64_t dim = 0;                   // D
  const void* x = nullptr;           // (N, D)
  const void* residual = nullptr;    // (N, D), optional
  void* sum = nullptr;               // (N, D) h; needed with residual, may be x or residual
  const void* weight = nullptr;      // (D); null: 1
  const void* bias = nullptr;        // (D); null: 0
  float eps = 1e-5f;
  void* y = nullptr;      // (N, D), may be x when there is no residual
  float* mean = nullptr;  // (N), optional: kept for backward
  float* rstd = nullptr;  // (N), optional: kept for backward
  int num_threads = 0;    // 0: OpenMP's default
};

struct LayerNormBackward {
  Scalar type = Scalar::F32;  // of dy, x, d_residual, dx
  Scalar weight_type = Scalar::F32;
  int64_t rows = 0;
  int64_t dim = 0;
  const void* dy = nullptr;          // (N, D)
  const void* x = nullptr;           // (N, D) what was normed: h where forward had a residual
  const void* weight = nullptr;      // (D); null: 1
  const float* mean = nullptr;       // (N)
  const float* rstd = nullptr;       // (N)
  const void* d_residual = nullptr;  // (N, D), optional: added to dx
  void* dx = nullptr;                // (N, D), may be dy, x or d_residual
  VectorGradient dweight, dbias;
  int num_threads = 0;
};

namespace cpu {
void layer_norm_forward(const LayerNormForward& args);
void layer_norm_backward(const LayerNormBackward& args);
}  // namespace cpu

}  // namespace snug::kernels
