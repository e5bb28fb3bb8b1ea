// Layers that the ranks of a group share (Shoeybi et al. 2019, Korthikanti et al. 2022): the same
// functions as ops/linear.h and ops/embedding.h, of parts. Between them hidden states are rows as
// ops/shared_rows.h says: (c, D) with sequence parallelism, else (N, D) at every rank alike.
//
// Inputs are saved as they came in, so as this rank's rows, and gathered once more in the backward,
// beside the products that give their gradient; that gradient is summed beside the products that
// give the weights'.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/embedding.h"
#include "ops/product_input.h"
#include "ops/projection.h"
#include "ops/shared_rows.h"

namespace snug::ops {

// Layers cut by outputs that read the same x (c, in) -> (N, out) each, this rank's features of all
// tokens.
std::vector<at::Tensor> output_cut_linears(const at::Tensor& x,
                                           const std::vector<Projection>& projections,
                                           int64_t num_tokens, const TensorShare& share);

// A layer cut by inputs: of this rank's features of all tokens (N, in) -> (c, out). The bias is
// whole, and added once.
at::Tensor input_cut_linear(const ProductInput& input, const Projection& projection,
                            const TensorShare& share);

// ids (N) int32, weight (V, D), which is the part of the table that is here -> (c, D) of `type`.
at::Tensor cut_embedding(const at::Tensor& ids, const at::Tensor& weight, const TablePart& part,
                         at::ScalarType type, const TensorShare& share);

}  // namespace snug::ops
