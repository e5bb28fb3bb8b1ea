// Where a kernel puts the gradient of a vector of weights: a norm's weight or bias.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels {

struct VectorGradient {
  void* data = nullptr;  // (D); null: not wanted
  Scalar type = Scalar::F32;
  bool accumulate = false;  // add to `data` instead of overwriting it; either rounds once
};

}  // namespace snug::kernels
