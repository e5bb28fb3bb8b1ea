// A parameter as plain autograd wants it: for the few places where a parameter is added,
// concatenated or expanded rather than multiplied with.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace snug::ops {

// The parameter's value in `type`: a view of it, or a copy in another type. Its gradient goes into
// the parameter's buffer (ops/device.h), like every operator's.
at::Tensor trained_input(const at::Tensor& parameter, at::ScalarType type);

}  // namespace snug::ops
