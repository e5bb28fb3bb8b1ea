// Exchange of rows of hidden states under tensor parallelism (core/ops/shared_rows.h), for units
// whose input and output have different rows. Without sequence parallelism every rank has all rows,
// and only gradients are exchanged.
//
// Shapes: N rows of D features in total, c of them on this rank; R rows of another tensor, e of
// them on this rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/ops/tensor_share.h"

namespace snug::ops {

// x (c, D) -> all rows (N, D), the same on every rank. Each rank's incoming gradient is a term; x
// gets the sum.
at::Tensor all_rows(const at::Tensor& x, int64_t num_rows, const TensorShare& share);

// x (N, D), the same on every rank -> this rank's rows (c, D). x's gradient is this rank's term:
// zero in all other rows.
at::Tensor own_rows(const at::Tensor& x, const TensorShare& share);

// hidden (c, D) with row index[i] of all N replaced by rows[i]; rows (e, D), index (R) int32
// without duplicates. The replaced rows of `hidden` get a gradient of zero.
at::Tensor replace_shared_rows(const at::Tensor& hidden, const at::Tensor& rows,
                               const at::Tensor& index, const TensorShare& share);

// A whole tensor of shape `whole` from the ranks' slices `own`, of which each has a range of
// dimension `dim`, larger ones first; the same on every rank. No gradient.
at::Tensor join_slices(const at::Tensor& own, int64_t dim, const std::vector<int64_t>& whole,
                       const TensorShare& share);

}  // namespace snug::ops
