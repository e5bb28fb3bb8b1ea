// Copies of arrays of attention heads with another width: longer heads end in zeros, shorter ones
// leave the ends out. Only GPUs need them (core/ops/attention/library_attention.cpp).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels {

struct HeadWidths {
  // What attention's backward reads: its output, that output's gradient, queries, keys and values.
  static constexpr int kMostArrays = 5;

  struct Copy {
    const void* from = nullptr;  // (N, H, from_dim), a token's heads together
    int64_t from_stride = 0;     // of tokens, in elements
    void* to = nullptr;          // (N, H, to_dim), contiguous
    int64_t tokens = 0;
    int64_t heads = 0;
  };

  Scalar type = Scalar::F32;
  int64_t from_dim = 0, to_dim = 0;
  Copy copies[kMostArrays] = {};  // the first without tokens ends them
};

}  // namespace snug::kernels
