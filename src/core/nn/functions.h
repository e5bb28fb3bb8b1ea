// The operators as units call them. They take parameters and layers rather than tensors, so that
// units need not know about tensor parallelism (nn::Slice, core/ops/shared_rows.h); without it they
// are the plain operators. `like` may be any parameter of the unit: it only tells which ranks share
// the layer.
//
// Shapes: N rows of hidden states (tokens of the batch or the source, or positions of pictures); c
// of them on this rank, c = N without sequence parallelism; D hidden size; V vocabulary.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "core/nn/linear.h"
#include "core/nn/unit.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/norm.h"

namespace snug::nn {

inline int64_t num_tokens(const Batch& batch) { return batch.input_ids.size(0); }
inline int64_t num_source_tokens(const Batch& batch) { return batch.source->input_ids.size(0); }

// Embedding lookup: the table's rows for `ids` (N), in pass.compute: (c, D), or (N, D) if the table
// is not shared among ranks.
at::Tensor look_up(const at::Tensor& ids, const Parameter& table, const Pass& pass);

// An RMSNorm's parameter, "<name>.weight".
struct RmsNorm {
  RmsNorm(const std::string& name, int64_t size, double epsilon,
          kernels::NormForm norm_form = kernels::NormForm::Llama);
  // x (c, D) -> (c, D)
  at::Tensor forward(const at::Tensor& x, ops::NormFeeds feeds = ops::NormFeeds::Product) const;
  // x, for the connection past the layers that read its norm, and the norm.
  std::pair<at::Tensor, at::Tensor> forward_beside(const at::Tensor& x) const;
  // sum = x + residual, and its norm.
  std::pair<at::Tensor, at::Tensor> forward_sum(const at::Tensor& x,
                                                const at::Tensor& residual) const;
  // The norm of queries or keys, x (N, features on this rank) -> the same shape, for attention: of
  // each head of D features, or of the whole projection, of which ranks have slices.
  at::Tensor forward_heads(const at::Tensor& x) const;

  Parameter weight;  // (D)
  double eps;
  kernels::NormForm form;
};

// A layer norm's two parameters, "<name>.weight" and "<name>.bias".
struct LayerNorm {
  LayerNorm(const std::string& name, int64_t size, double epsilon);
  // x (c, D) -> (c, D)
  at::Tensor forward(const at::Tensor& x) const;
  // x, for the connection past the layers that read its norm, and the norm.
  std::pair<at::Tensor, at::Tensor> forward_beside(const at::Tensor& x) const;
  // sum = x + residual, and its norm.
  std::pair<at::Tensor, at::Tensor> forward_sum(const at::Tensor& x,
                                                const at::Tensor& residual) const;
  void list(std::vector<Parameter*>& parameters);

  Parameter weight, bias;  // (D)
  double eps;
};

// The parameter's value in `type`, with a gradient, for units that add, concatenate or expand it.
at::Tensor trained_input(const Parameter& parameter, at::ScalarType type);

// Dropout on hidden states x (c, D) while training (pass.dropout_key). `site` names the place in
// the model and must be unique: it seeds the mask.
at::Tensor dropout(const at::Tensor& x, double probability, const std::string& site,
                   const Pass& pass, const Parameter& like);
// The same for the output of `layer`, x (N, features on this rank).
at::Tensor dropout_features(const at::Tensor& x, double probability, const std::string& site,
                            const Pass& pass, const Linear& layer);
// NEFTune (Jain et al. 2023): adds noise to what look_up() made of the batch's tokens, x (c, D), in
// place, uniform within ±batch.noise[row] / sqrt(D).
void add_noise(const at::Tensor& x, const Batch& batch, const Pass& pass, const Parameter& table);

// The outputs of several layers for the same x (c, D), in order: (N, features on this rank) each.
std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<const Linear*>& layers,
                                int64_t num_rows, const Pass& pass);

// All rows (N, D) of hidden states x (c, D), for Linear::forward_features() and for logits.
at::Tensor all_rows(const at::Tensor& x, const Parameter& like, int64_t num_rows);
// The inverse: this rank's rows (c, D) of x (N, D), which is the same on every rank.
at::Tensor own_rows(const at::Tensor& x, const Parameter& like);

// This rank's features of x (N, in), which is the same on every rank, for a layer split along
// inputs; for any other layer x itself. Each rank's gradient of x is its term of a sum.
at::Tensor own_features(const at::Tensor& x, const Linear& layer);

// hidden (c, D of N rows) with the rows `index` (R) int32 replaced by R rows of other hidden
// states; `rows` holds this rank's share of those.
at::Tensor replace_rows(const at::Tensor& hidden, const at::Tensor& rows, const at::Tensor& index,
                        const Parameter& like);

// The last row of each document in x (N, D): (S, D).
at::Tensor last_rows(const at::Tensor& x, const Batch& batch);

// x (S, D) -> (S, V) float32, the same on every rank. No gradient.
at::Tensor logits(const at::Tensor& x, const Linear& head, const Pass& pass,
                  const ops::LogitForm& form = {});

}  // namespace snug::nn
