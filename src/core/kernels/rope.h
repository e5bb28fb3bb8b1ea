// Rotary position embedding: pairs of elements are rotated together. Tables come from
// rope_tables.h. float32 inside, one rounding; each element is read and written once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels {

// Which elements make pair i of R/2: i and i + R/2 as in Llama, or 2i and 2i + 1 as in GLM.
enum class RopePairs : uint8_t { Halves, Neighbours };
enum class RopeDirection : uint8_t { Forward, Inverse };  // Inverse is the backward pass

struct RopeApply {
  Scalar type = Scalar::F32;
  int64_t tokens = 0;      // N
  int64_t heads = 0;       // H
  int64_t head_dim = 0;    // D
  int64_t rotary_dim = 0;  // R <= D, even; 0: D. Elements from R on are left alone
  RopePairs paired = RopePairs::Halves;
  int64_t token_stride = 0;  // in elements; 0: H * D
  void* x = nullptr;         // (N, H, D), turned in place
  // Keys beside queries: turned too, if there are any.
  int64_t more_heads = 0;              // H'
  int64_t more_token_stride = 0;       // in elements; 0: H' * D
  void* more_x = nullptr;              // (N, H', D)
  const int32_t* positions = nullptr;  // (N), each in [0, max_positions)
  const float* cos = nullptr;          // (max_positions, R/2)
  const float* sin = nullptr;
  int64_t max_positions = 0;
  RopeDirection direction = RopeDirection::Forward;
  int num_threads = 0;
};

namespace cpu {
void rope_apply(const RopeApply& args);
}  // namespace cpu

}  // namespace snug::kernels
