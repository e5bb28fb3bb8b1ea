// What the operators need to know about where they run. On `meta` nothing is computed, but the
// same buffers are asked for as on the device that is being planned for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "kernels/cpu/scalar.h"

namespace snug::ops {

kernels::cpu::Scalar to_scalar(at::ScalarType type);

// Scratch for a CPU kernel, counted by the ledger. `run` gets its address; on meta it is not
// called.
template <class Run>
void with_workspace(const at::Tensor& like, int64_t bytes, Run run) {
  const at::Tensor scratch = at::empty({bytes}, like.options().dtype(at::kByte));
  if (!like.is_meta()) run(scratch.mutable_data_ptr());
}

// The parameter's gradient buffer, created (tagged as gradients) when it has none. `fresh` says
// that its content is undefined: the first writer overwrites instead of adding.
struct GradientBuffer {
  at::Tensor tensor;
  bool fresh;
};
GradientBuffer gradient_buffer(const at::Tensor& parameter);

// Adds a whole gradient of the parameter's shape, of any type, to its buffer.
void add_to_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

}  // namespace snug::ops
