// The sum over an array's rows, which is the gradient of a bias. On the CPU it is a product with
// ones (core/ops/linear/matmul.cpp).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"
#include "core/kernels/vector_gradient.h"

namespace snug::kernels {

struct SumOfRows {
  Scalar type = Scalar::F32;
  int64_t rows = 0;         // N
  int64_t dim = 0;          // D
  int64_t row_stride = 0;   // in elements
  const void* x = nullptr;  // (N, D)
  VectorGradient total;     // (D)
};

}  // namespace snug::kernels
