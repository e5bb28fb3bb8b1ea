// The operators as units call them: with parameters and layers rather than tensors, so that how
// ranks share a layer (nn::Slice, ops/shared_rows.h) is no unit's business. Where nobody shares it
// these are the plain operators. A parameter called `like` only says who shares: any of the unit's.
//
// Shapes: N rows of hidden states, a batch's tokens, a source's or its pictures' places; c of them
// here, N unless ranks share the model with sequence parallelism; D hidden size; V vocabulary.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "nn/linear.h"
#include "nn/unit.h"

namespace snug::nn {

inline int64_t num_tokens(const Batch& batch) { return batch.input_ids.size(0); }
inline int64_t num_source_tokens(const Batch& batch) { return batch.source->input_ids.size(0); }

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

// The parameter's value (shape) in `type`, to be added, joined or expanded to rows of hidden
// states.
at::Tensor trained_input(const Parameter& parameter, at::ScalarType type);

// Drops elements of hidden states x (c, D) while training (pass.dropout_key); `site` names the
// place in the model, so that no two drop alike.
at::Tensor dropout(const at::Tensor& x, double probability, const std::string& site,
                   const Pass& pass, const Parameter& like);
// The same of what `layer` yields, x (N, features that are here).
at::Tensor dropout_features(const at::Tensor& x, double probability, const std::string& site,
                            const Pass& pass, const Linear& layer);

// What layers make of the same x (c, D), in their order: (N, features that are here) each.
std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<const Linear*>& layers,
                                int64_t num_rows, const Pass& pass);

// All rows (N, D) of hidden states x (c, D), for Linear::forward_features() and for logits.
at::Tensor all_rows(const at::Tensor& x, const Parameter& like, int64_t num_rows);
// The other way: of x (N, D), which every rank has alike, (c, D).
at::Tensor own_rows(const at::Tensor& x, const Parameter& like);

// hidden (c, D) of N rows, with those of `index` (R) int32 replaced by what R rows of other hidden
// states are, of which `rows` has those that are here.
at::Tensor replace_rows(const at::Tensor& hidden, const at::Tensor& rows, const at::Tensor& index,
                        const Parameter& like);

// The last row of each document of x (N, D): (S, D).
at::Tensor last_rows(const at::Tensor& x, const Batch& batch);

// The summed loss of the batch, (1), from the head's input x (c, D).
at::Tensor cross_entropy(const at::Tensor& x, const Linear& head, const Batch& batch,
                         const Pass& pass);
// x (S, D) -> (S, V) float32, at every rank alike. No gradient.
at::Tensor logits(const at::Tensor& x, const Linear& head, const Pass& pass);

}  // namespace snug::nn
