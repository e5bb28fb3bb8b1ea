// SGD over a list of tensors, as torch.optim.SGD computes it:
//   g += weight_decay * p;  buf = momentum * buf + (1 - dampening) * g  (first step: buf = g)
//   g = nesterov ? g + momentum * buf : buf;  p -= lr * g
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/cpu/scalar.h"

namespace snug::kernels::cpu {

struct SgdTensor {
  int64_t count = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  void* momentum_buffer = nullptr;  // needed where momentum is not 0
  float* master = nullptr;          // optional float32 weights: read and updated
  Scalar param_type = Scalar::F32;
  Scalar grad_type = Scalar::F32;
  Scalar state_type = Scalar::F32;  // F32 or BF16
  uint64_t tensor_id = 0;
};

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool first_step = false;  // the momentum buffer holds nothing yet
  int64_t step = 1;         // for stochastic rounding only
  float grad_scale = 1.0f;
  bool stochastic_rounding = false;  // as in adamw.h
  uint64_t seed = 0;
  int num_threads = 0;
};
void sgd_step(std::span<const SgdTensor> tensors, const SgdOptions& options);

}  // namespace snug::kernels::cpu
