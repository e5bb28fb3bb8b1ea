// Rows of a table, and their gradient added straight into the table's gradient buffer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace snug::ops {

// ids (N) int32, weight (V, D) -> (N, D) of `type`. Repeatable: equal ids are summed in order.
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight, at::ScalarType type);

// Rows [first, first + V) of a table with `whole` rows. Other ids give zeros and get no gradient on
// this rank.
struct TablePart {
  int64_t first = 0;
  int64_t whole = 0;  // 0: the table is not split
};

// Forward and backward without autograd. out (N, D) of the weight's type.
void look_up(const at::Tensor& out, const at::Tensor& ids, const at::Tensor& weight,
             const TablePart& part);
void add_row_gradients(const at::Tensor& weight, const at::Tensor& ids, const at::Tensor& d_out,
                       const TablePart& part);

}  // namespace snug::ops
