// Rows of a table, and their gradient added straight into the table's gradient buffer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace snug::ops {

// ids (N) int32, weight (V, D) -> (N, D) of `type`. Repeatable: equal ids are summed in order.
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight, at::ScalarType type);

}  // namespace snug::ops
