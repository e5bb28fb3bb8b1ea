// Rows of hidden states that change hands among the ranks that share layers (ops/shared_rows.h):
// functions for where a unit's input is not of the same rows as its output. Without sequence
// parallelism every rank has all rows, and only gradients move.
//
// Shapes: N rows of D features in all, c of them here; R rows of another tensor, e of them here.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/shared_rows.h"

namespace snug::ops {

// x (c, D) -> all of them (N, D), at every rank alike. The gradient that arrives at a rank is a
// term; x's is the sum.
at::Tensor all_rows(const at::Tensor& x, int64_t num_rows, const TensorShare& share);

// x (N, D), at every rank alike -> this rank's rows (c, D). x's gradient is a term: that of these
// rows, and zero in the others.
at::Tensor own_rows(const at::Tensor& x, const TensorShare& share);

// hidden (c, D) with row index[i] of all N replaced by rows[i]; rows (e, D), index (R) int32, no
// index twice. The replaced rows of `hidden` get a gradient of zero.
at::Tensor replace_shared_rows(const at::Tensor& hidden, const at::Tensor& rows,
                               const at::Tensor& index, const TensorShare& share);

}  // namespace snug::ops
