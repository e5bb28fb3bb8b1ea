// RMSNorm over rows of (N, D), alone or fused with the residual addition before it.
//   h = x + residual (rounded once to `type`; without residual h = x)
//   rstd = 1 / sqrt(mean(h^2) + eps),  y = weight * round_to_type(h * rstd)
// Sums are float32. The weight's gradient is summed over fixed blocks of rows, so that every thread
// count gives the same bits. Per element: forward reads x (and residual) and writes y (and h);
// backward reads dy, x (and d_residual) and writes dx.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"
#include "core/kernels/vector_gradient.h"

namespace snug::kernels {

// Gemma multiplies by (1 + weight) and rounds only once, at the end; Gemma 4 by the weight, and
// rounds as Gemma does.
enum class NormForm : uint8_t { Llama, Gemma, Gemma4 };

struct RmsNormForward {
  Scalar type = Scalar::F32;         // of x, residual, sum, y
  Scalar weight_type = Scalar::F32;  // may differ: float32 weights under mixed precision
  NormForm form = NormForm::Llama;
  int64_t rows = 0;                // N
  int64_t dim = 0;                 // D
  const void* x = nullptr;         // (N, D)
  const void* residual = nullptr;  // (N, D), optional
  void* sum = nullptr;             // (N, D) h; needed with residual, may be x or residual
  const void* weight = nullptr;    // (D), null: 1
  float eps = 1e-5f;
  void* y = nullptr;      // (N, D), may be x when there is no residual
  float* rstd = nullptr;  // (N), optional: kept for backward
  int num_threads = 0;    // 0: OpenMP's default
};

struct RmsNormBackward {
  Scalar type = Scalar::F32;  // of dy, x, d_residual, dx
  Scalar weight_type = Scalar::F32;
  NormForm form = NormForm::Llama;
  int64_t rows = 0;
  int64_t dim = 0;
  const void* dy = nullptr;          // (N, D)
  const void* x = nullptr;           // (N, D) what was normed: h where forward had a residual
  const void* weight = nullptr;      // (D), null: 1
  const float* rstd = nullptr;       // (N)
  const void* d_residual = nullptr;  // (N, D), optional: added to dx
  void* dx = nullptr;                // (N, D), may be dy, x or d_residual
  VectorGradient dweight;
  int num_threads = 0;
};

namespace cpu {
void rms_norm_forward(const RmsNormForward& args);
void rms_norm_backward(const RmsNormBackward& args);
}  // namespace cpu

}  // namespace snug::kernels
