// Lion (Chen et al. 2023) over a list of tensors in one sweep:
//   c = beta1 * m + (1 - beta1) * g;  p = p * (1 - lr * weight_decay) - lr * sign(c)
//   m = beta2 * m + (1 - beta2) * g
// float32 inside; each array is read and written once (20 bytes a float32 parameter).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/cpu/scalar.h"

namespace snug::kernels::cpu {

struct LionTensor {
  int64_t count = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  void* exp_avg = nullptr;
  float* master = nullptr;  // as in adamw.h
  Scalar param_type = Scalar::F32;
  Scalar grad_type = Scalar::F32;
  Scalar state_type = Scalar::F32;  // F32 or BF16
  uint64_t tensor_id = 0;
};

struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  int64_t step = 1;  // for stochastic rounding only
  float grad_scale = 1.0f;
  bool stochastic_rounding = false;  // as in adamw.h
  uint64_t seed = 0;
  int num_threads = 0;
};
void lion_step(std::span<const LionTensor> tensors, const LionOptions& options);

}  // namespace snug::kernels::cpu
