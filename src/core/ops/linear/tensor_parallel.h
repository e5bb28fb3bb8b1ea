// Tensor-parallel versions of core/ops/linear/linear.h and core/ops/embedding.h (Shoeybi et al.
// 2019, Korthikanti et al. 2022). Between layers hidden states are split by rows
// (core/ops/shared_rows.h): (c, D) with sequence parallelism, else (N, D), the same on every rank.
//
// Only this rank's rows of the input are saved; the backward gathers them again while it computes
// the input's gradient, which is summed over ranks while the weights' gradients are computed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/ops/embedding.h"
#include "core/ops/linear/matmul.h"
#include "core/ops/linear/projection.h"
#include "core/ops/tensor_share.h"

namespace snug::ops {

// Layers split along outputs on the same x (c, in) -> (N, out) each: this rank's features of all
// tokens.
std::vector<at::Tensor> output_cut_linears(const at::Tensor& x,
                                           const std::vector<Projection>& projections,
                                           int64_t num_tokens, const TensorShare& share);

// A layer split along inputs, from this rank's features of all tokens (N, in) -> (c, out). The bias
// is not split, and added once.
at::Tensor input_cut_linear(const ProductInput& input, const Projection& projection,
                            const TensorShare& share);

// ids (N) int32, weight (V, D), this rank's rows of the table -> (c, D) of `type`.
at::Tensor cut_embedding(const at::Tensor& ids, const at::Tensor& weight, const TablePart& part,
                         at::ScalarType type, const TensorShare& share);

}  // namespace snug::ops
