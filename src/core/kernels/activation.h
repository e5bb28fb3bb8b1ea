// ReLU, SiLU, GELU and others, plain and gated: y = act(x) and y = act(gate) * up (SwiGLU, GeGLU),
// or gpt-oss's clamped SwiGLU. float32 inside, one rounding at the end. Forward reads its inputs
// and writes y; backward recomputes act from the inputs, so that only those need to be kept, and
// can write y once more for the gradient of the weight that y is multiplied with. Every output may
// be one of the inputs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels {

// Gelu: with the error function (Hendrycks & Gimpel 2016); GeluTanh: its approximation by tanh.
// ReluSquared: max(x, 0)² (So et al. 2021). Sigmoid: 1 / (1 + exp(-x)).
enum class Activation : uint8_t { Relu, Gelu, GeluTanh, Silu, ReluSquared, Sigmoid };

struct ActivationForward {
  Activation activation = Activation::Silu;
  Scalar type = Scalar::F32;
  int64_t count = 0;
  const void* x = nullptr;
  void* y = nullptr;
  int num_threads = 0;
};

struct ActivationBackward {
  Activation activation = Activation::Silu;
  Scalar type = Scalar::F32;
  int64_t count = 0;
  const void* dy = nullptr;
  const void* x = nullptr;
  void* dx = nullptr;
  void* y = nullptr;  // optional: what forward wrote
  int num_threads = 0;
};

// gpt-oss's gate: y = g * logistic(alpha * g) * (u + 1), where g is the gate and u the other, g at
// most `limit` and u between -limit and limit. The gradient of what was clamped is zero.
struct GateClamp {
  float limit = 0;  // 0: no clamped gate but act(gate) * up
  float alpha = 1;
};

// Strides are in elements from row to row; 0: features. A fused (N, 2F) projection has 2F for both.
struct GatedForward {
  Activation activation = Activation::Silu;
  GateClamp clamp;  // with a limit in place of `activation`
  Scalar type = Scalar::F32;
  int64_t rows = 0;            // N
  int64_t features = 0;        // F
  const void* gate = nullptr;  // (N, F)
  const void* up = nullptr;    // (N, F)
  void* y = nullptr;           // (N, F)
  int64_t input_stride = 0;    // of gate and up
  int64_t output_stride = 0;   // of y
  int num_threads = 0;
};

struct GatedBackward {
  Activation activation = Activation::Silu;
  GateClamp clamp;  // as forward
  Scalar type = Scalar::F32;
  int64_t rows = 0;
  int64_t features = 0;
  const void* dy = nullptr;    // (N, F)
  const void* gate = nullptr;  // (N, F)
  const void* up = nullptr;    // (N, F)
  void* dgate = nullptr;       // (N, F)
  void* dup = nullptr;         // (N, F)
  void* y = nullptr;           // (N, F), optional: what forward wrote
  int64_t input_stride = 0;    // of gate, up, dgate and dup
  int64_t output_stride = 0;   // of dy and y
  int num_threads = 0;
};

namespace cpu {
void activation_forward(const ActivationForward& args);
void activation_backward(const ActivationBackward& args);
void gated_forward(const GatedForward& args);
void gated_backward(const GatedBackward& args);
}  // namespace cpu

}  // namespace snug::kernels
