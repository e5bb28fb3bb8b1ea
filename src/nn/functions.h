// The operators as units call them: with parameters and layers rather than tensors, so that how
// ranks share a layer (nn::Slice, ops/shared_rows.h) is no unit's business. Where nobody shares it
// these are the plain operators.
//
// Shapes: N tokens of the batch; c rows of hidden states that are here, N unless ranks share the
// model with sequence parallelism; D hidden size; V vocabulary.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "nn/linear.h"
#include "nn/unit.h"

namespace snug::nn {

// The table's rows of `ids` (N), in pass.compute: (c, D). Of a table that ranks do not share all
// rows: (N, D).
at::Tensor look_up(const at::Tensor& ids, const Parameter& table, const Pass& pass);

// x (c, D) -> (c, D)
at::Tensor rms_norm(const at::Tensor& x, const Parameter& weight, double eps);
// sum = x + residual, and its norm.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                               const Parameter& weight, double eps);

// A layer norm's two parameters, "<name>.weight" and "<name>.bias".
struct LayerNorm {
  LayerNorm(const std::string& name, int64_t size, double epsilon);
  // x (c, D) -> (c, D)
  at::Tensor forward(const at::Tensor& x) const;
  // sum = x + residual, and its norm.
  std::pair<at::Tensor, at::Tensor> forward_sum(const at::Tensor& x,
                                                const at::Tensor& residual) const;
  void list(std::vector<Parameter*>& parameters);

  Parameter weight, bias;  // (D)
  double eps;
};

// Drops elements of x (c, D) while training (pass.dropout_key); `site` names the place in the
// model, so that no two drop alike. `share` is that of the layer which x comes from; null: all rows
// are here.
at::Tensor dropout(const at::Tensor& x, double probability, const std::string& site,
                   const Pass& pass, const ops::TensorShare* share = nullptr);

// What layers make of the same x (c, D), in their order: (N, features that are here) each.
std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<const Linear*>& layers,
                                const Batch& batch, const Pass& pass);

// All rows (N, D) of hidden states x (c, D), of which `weight`'s layer is to make something. No
// gradient.
at::Tensor all_rows(const at::Tensor& x, const Parameter& weight, const Batch& batch);

// The last row of each document of x (N, D): (S, D).
at::Tensor last_rows(const at::Tensor& x, const Batch& batch);

// The summed loss of the batch, (1), from the head's input x (c, D).
at::Tensor cross_entropy(const at::Tensor& x, const Linear& head, const Batch& batch,
                         const Pass& pass);
// x (S, D) -> (S, V) float32, at every rank alike. No gradient.
at::Tensor logits(const at::Tensor& x, const Linear& head, const Pass& pass);

}  // namespace snug::nn
