// Short convolution of each feature over the rows of packed documents, with zeros before a
// document's first row:
//   s[t] = bias + sum over j < K of weight[K-1-j] * u[t-j]
// between gates (LFM2, Liquid AI 2025), where a row of the input has b, c and x side by side, or
// with an activation (Mamba, Gu and Dao 2023; Qwen3-Next):
//   Gates: u = b * x, y = c * s        Silu: u = x, y = s / (1 + exp(-s))
// Backward computes u and s again, so that only the input is kept. Sums are float32, rounded once
// at the end. The gradients of weight and bias are summed over fixed blocks of rows, so that every
// thread count gives the same bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"
#include "core/kernels/vector_gradient.h"

namespace snug::kernels {

inline constexpr int64_t kMostTaps = 8;

enum class ConvForm : uint8_t { Gates, Silu };

struct ShortConvForward {
  ConvForm form = ConvForm::Gates;
  Scalar type = Scalar::F32;  // of x and y
  Scalar weight_type = Scalar::F32;
  int64_t rows = 0;                    // N
  int64_t features = 0;                // F
  int64_t taps = 0;                    // K, at most kMostTaps
  const void* x = nullptr;             // (N, 3F): b, c, x; or (N, F)
  const int32_t* positions = nullptr;  // (N): how many rows of its document are before each
  const void* weight = nullptr;        // (F, K): the last tap is the row's own
  const void* bias = nullptr;          // (F), optional
  void* y = nullptr;                   // (N, F)
  int num_threads = 0;                 // 0: OpenMP's default
};

struct ShortConvBackward {
  ShortConvForward forward;  // its arguments; y is not read
  const void* dy = nullptr;  // (N, F)
  void* dx = nullptr;        // as x
  VectorGradient dweight;    // (F, K)
  VectorGradient dbias;      // (F)
};

namespace cpu {
// Throw InternalError for sizes that are not as above.
void short_conv_forward(const ShortConvForward& args);
void short_conv_backward(const ShortConvBackward& args);
}  // namespace cpu

}  // namespace snug::kernels
