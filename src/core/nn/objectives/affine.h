// Multiples of tensors for objectives. x * 2.0 allocates a tensor for the number on a CPU, which a
// plan does not count; add(x, factor) does not.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>

namespace snug::nn {

inline at::Tensor times(const at::Tensor& x, double factor) {
  return at::zeros_like(x).add(x, factor);
}
inline at::Tensor line(const at::Tensor& x, double factor, double at_zero) {
  return at::full_like(x, at_zero).add(x, factor);
}

}  // namespace snug::nn
