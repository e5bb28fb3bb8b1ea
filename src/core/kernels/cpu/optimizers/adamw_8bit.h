// AdamW with moments in 8 bits, as bitsandbytes' block-wise AdamW8bit: each block of 256 elements
// has a float32 scale (its largest magnitude) and codes of the dynamic maps (dynamic_map.h), signed
// for the first moment, unsigned for the second. A block's moments are decoded, updated as in
// adamw.h in float32, used for the weights, and only then encoded again, to the nearest code. 2.03
// bytes of state a parameter; each array is read and written once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/cpu/optimizers/adamw.h"

namespace snug::kernels::cpu {

inline constexpr int64_t kQuantizedBlock = 256;

struct AdamW8bitTensor {
  int64_t count = 0;
  void* param = nullptr;
  const void* grad = nullptr;
  uint8_t* exp_avg = nullptr;
  uint8_t* exp_avg_sq = nullptr;
  float* exp_avg_absmax = nullptr;     // one a block; 0 makes the block's codes mean 0
  float* exp_avg_sq_absmax = nullptr;  // as well
  float* master = nullptr;             // as in adamw.h
  Scalar param_type = Scalar::F32;
  Scalar grad_type = Scalar::F32;
  uint64_t tensor_id = 0;
};
void adamw_8bit_step(std::span<const AdamW8bitTensor> tensors, const AdamWOptions& options);

}  // namespace snug::kernels::cpu
