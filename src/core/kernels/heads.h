// Attention heads, brought into the form that libtorch's kernels and products want, and back
// (core/ops/attention/library_attention.cpp).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels {

// What attention's backward reads: its output, that output's gradient, queries, keys and values.
inline constexpr int kMostHeadArrays = 5;

// Copies with another width: longer heads end in zeros, shorter ones leave the ends out. Only GPUs
// need them.
struct HeadWidths {
  struct Copy {
    const void* from = nullptr;  // (N, H, from_dim), a token's heads together
    int64_t from_stride = 0;     // of tokens, in elements
    void* to = nullptr;          // (N, H, to_dim), contiguous
    int64_t tokens = 0;
    int64_t heads = 0;
  };

  Scalar type = Scalar::F32;
  int64_t from_dim = 0, to_dim = 0;
  Copy copies[kMostHeadArrays] = {};  // the first without tokens ends them
};

// Between tokens (N, heads, dim) of `type`, a token's heads together, and blocks (documents, heads,
// rows, dim) of float32.
struct HeadRows {
  enum class Way {
    Read,   // tokens to blocks; rows that a document has not are zero
    Write,  // blocks to tokens
    Add     // blocks are added to tokens
  };

  struct Array {
    const void* from = nullptr;
    void* to = nullptr;
    int64_t stride = 0;  // of tokens, in elements
    int64_t heads = 0;
    int64_t rows = 0;  // the first array without rows ends them
    // Document d has tokens borders[d] .. borders[d + 1], at most `rows`. Null: each has `rows`,
    // one document after another.
    const int32_t* borders = nullptr;
  };

  Way way = Way::Read;
  Scalar type = Scalar::F32;
  int64_t documents = 1, dim = 0;
  Array arrays[kMostHeadArrays] = {};
};

namespace cpu {
void move_head_rows(const HeadRows& args);
}  // namespace cpu

}  // namespace snug::kernels
