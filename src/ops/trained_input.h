// A parameter as plain autograd wants it: for the few places where a parameter is added,
// concatenated or expanded rather than multiplied with.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace snug::dist {
class Group;
}

namespace snug::ops {

// The parameter's value in `type`: a view of it, or a copy in another type. Its gradient goes into
// the parameter's buffer (ops/device.h), like every operator's; where what it is added to is dealt
// out to the ranks of a group, `rows_of` is that group, which sums it.
at::Tensor trained_input(const at::Tensor& parameter, at::ScalarType type,
                         dist::Group* rows_of = nullptr);

}  // namespace snug::ops
