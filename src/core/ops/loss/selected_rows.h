// Some rows of a tensor, such as each document's last: what the others' norm, product and loss
// would take is never made.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace snug::ops {

// x (N, D), rows (S) int32 without duplicates -> (S, D). The gradient of other rows is 0.
at::Tensor select_rows(const at::Tensor& x, const at::Tensor& rows);

}  // namespace snug::ops
