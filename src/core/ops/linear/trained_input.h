// A parameter as input of ordinary autograd operations, for the few places where it is added,
// concatenated or expanded rather than multiplied.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace snug::dist {
class Group;
}

namespace snug::ops {

// The parameter's value in `type`: a view of it, or a copy in another type. Its gradient is added
// to the parameter's buffer (core/ops/device/device.h), as in every operator. `rows_of`: the group
// that shares the rows it is added to, over which the gradient is summed.
at::Tensor trained_input(const at::Tensor& parameter, at::ScalarType type,
                         dist::Group* rows_of = nullptr);

}  // namespace snug::ops
