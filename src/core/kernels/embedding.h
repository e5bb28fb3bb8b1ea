// Embedding lookup and its gradient. The backward sorts tokens by id, so that one thread sums each
// table row, in token order: the same bits for any number of threads, and one rounding per table
// row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels {

struct EmbeddingForward {
  Scalar type = Scalar::F32;
  int64_t tokens = 0;            // N
  int64_t vocabulary = 0;        // V
  int64_t first = 0;             // the id of the first row
  int64_t whole_vocabulary = 0;  // 0: V; more: ids of rows that are not here give zeros
  int64_t dim = 0;               // D
  const int32_t* ids = nullptr;  // (N), each in [0, V), or [0, whole_vocabulary)
  const void* weight = nullptr;  // (V, D)
  void* out = nullptr;           // (N, D)
  int num_threads = 0;
};

struct EmbeddingBackward {
  Scalar type = Scalar::F32;       // of dy
  Scalar grad_type = Scalar::F32;  // of grad
  int64_t tokens = 0;
  int64_t vocabulary = 0;
  int64_t first = 0;
  int64_t whole_vocabulary = 0;
  int64_t dim = 0;
  const int32_t* ids = nullptr;  // (N)
  int32_t padding_index = -1;    // rows of this id get no gradient
  const void* dy = nullptr;      // (N, D)
  void* grad = nullptr;          // (V, D), added to
  int num_threads = 0;
};

namespace cpu {
void embedding_forward(const EmbeddingForward& args);
void embedding_backward(const EmbeddingBackward& args);
}  // namespace cpu

}  // namespace snug::kernels
