// A product with a number that a checkpoint has and nothing trains.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace snug::ops {

// x times `factor` (1), of any floating-point type, written over x, which is no view and whose
// value nothing else keeps.
at::Tensor scale_in_place(const at::Tensor& x, const at::Tensor& factor);

}  // namespace snug::ops
