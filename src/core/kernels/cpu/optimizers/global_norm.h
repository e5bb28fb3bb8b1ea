// Sum of squares over a list of tensors, in double: one sweep gives the gradients' norm and tells
// whether any element is infinite or NaN (squares of float32 values cannot overflow a double).
// Fixed blocks are added in order, so that every thread count gives the same bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/cpu/scalar.h"

namespace snug::kernels::cpu {

struct TensorView {
  int64_t count = 0;
  const void* data = nullptr;
  Scalar type = Scalar::F32;
};

struct SumOfSquares {
  double value = 0.0;  // infinite or NaN when not finite
  bool finite = true;
};
SumOfSquares sum_of_squares(std::span<const TensorView> tensors, int num_threads = 0);

}  // namespace snug::kernels::cpu
