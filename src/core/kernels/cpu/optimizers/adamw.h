// AdamW over a list of tensors in one sweep, as torch.optim.AdamW computes it:
//   p *= 1 - lr * weight_decay;  m += (g - m) * (1 - beta1);  v = v * beta2 + g * g * (1 - beta2)
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// float32 inside; each array is read and written once (28 bytes a float32 parameter).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/cpu/scalar.h"

namespace snug::kernels::cpu {

struct AdamWTensor {
  int64_t count = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  float* master = nullptr;  // optional float32 weights: read and updated, param is their rounding
  Scalar param_type = Scalar::F32;
  Scalar grad_type = Scalar::F32;
  Scalar state_type = Scalar::F32;  // F32 or BF16
  uint64_t tensor_id = 0;           // separates the random streams of stochastic rounding
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  int64_t step = 1;         // t, the first step is 1
  float grad_scale = 1.0f;  // multiplies every gradient: clipping, loss unscaling
  // Rounds BF16 params (those without master) up or down with the probability that keeps their
  // mean. The random bits depend only on (seed, step, tensor_id, index).
  bool stochastic_rounding = false;
  uint64_t seed = 0;
  int num_threads = 0;
};
void adamw_step(std::span<const AdamWTensor> tensors, const AdamWOptions& options);

}  // namespace snug::kernels::cpu
