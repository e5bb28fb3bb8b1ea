// SPDX-License-Identifier: Apache-2.0
#include "core/nn/functions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>

#include <cmath>

#include "core/kernels/random_key.h"
#include "core/nn/input_observer.h"
#include "core/ops/dropout.h"
#include "core/ops/embedding.h"
#include "core/ops/exchanged_rows.h"
#include "core/ops/linear/linear.h"
#include "core/ops/linear/tensor_parallel.h"
#include "core/ops/linear/trained_input.h"
#include "core/ops/pictures.h"

namespace snug::nn {
namespace {

dist::Group* other_rows(const Parameter& parameter) {
  return parameter.share == nullptr ? nullptr : parameter.share->other_rows();
}

}  // namespace

at::Tensor look_up(const at::Tensor& ids, const Parameter& table, const Pass& pass) {
  if (!table.slice) return ops::embedding(ids, table.value, pass.compute);
  return ops::cut_embedding(ids, table.value,
                            {.first = table.slice->begin, .whole = table.slice->whole[0]},
                            pass.compute, *table.share);
}

RmsNorm::RmsNorm(const std::string& name, int64_t size, double epsilon, kernels::NormForm norm_form)
    : weight{.name = name + ".weight",
             .shape = {size},
             .init = norm_form == kernels::NormForm::Gemma ? Init::Zeros : Init::Ones},
      eps(epsilon),
      form(norm_form) {}

at::Tensor RmsNorm::forward(const at::Tensor& x, ops::NormFeeds feeds) const {
  return ops::rms_norm(x, weight.value,
                       {.eps = eps, .form = form, .feeds = feeds, .rows_of = other_rows(weight)});
}

std::pair<at::Tensor, at::Tensor> RmsNorm::forward_beside(const at::Tensor& x) const {
  return ops::rms_norm_beside(x, weight.value,
                              {.eps = eps, .form = form, .rows_of = other_rows(weight)});
}

std::pair<at::Tensor, at::Tensor> RmsNorm::forward_sum(const at::Tensor& x,
                                                       const at::Tensor& residual) const {
  return ops::add_rms_norm(x, residual, weight.value,
                           {.eps = eps, .form = form, .rows_of = other_rows(weight)});
}

// Attention rotates the result in place. Ranks have heads of their own, so that each has a term of
// the gradient of a head's weight.
at::Tensor RmsNorm::forward_heads(const at::Tensor& x) const {
  if (weight.slice)
    return ops::cut_rms_norm(x, weight.value, eps, weight.slice->whole[0], *weight.share->group);
  dist::Group* group = weight.share == nullptr ? nullptr : weight.share->group;
  return ops::rms_norm(x.view({-1, weight.shape[0]}), weight.value,
                       {.eps = eps, .form = form, .feeds = ops::NormFeeds::Other, .rows_of = group})
      .view(x.sizes());
}

LayerNorm::LayerNorm(const std::string& name, int64_t size, double epsilon)
    : weight{.name = name + ".weight", .shape = {size}, .init = Init::Ones},
      bias{.name = name + ".bias", .shape = {size}, .init = Init::Zeros},
      eps(epsilon) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  return ops::layer_norm(x, weight.value, bias.value, eps, other_rows(weight));
}

std::pair<at::Tensor, at::Tensor> LayerNorm::forward_beside(const at::Tensor& x) const {
  return ops::layer_norm_beside(x, weight.value, bias.value, eps, other_rows(weight));
}

std::pair<at::Tensor, at::Tensor> LayerNorm::forward_sum(const at::Tensor& x,
                                                         const at::Tensor& residual) const {
  return ops::add_layer_norm(x, residual, weight.value, bias.value, eps, other_rows(weight));
}

void LayerNorm::list(std::vector<Parameter*>& parameters) {
  parameters.push_back(&weight);
  parameters.push_back(&bias);
}

// Only this rank uses its slice of a split parameter, so its gradient is complete without a sum.
at::Tensor trained_input(const Parameter& parameter, at::ScalarType type) {
  return ops::trained_input(parameter.value, type,
                            parameter.slice ? nullptr : other_rows(parameter));
}

at::Tensor dropout(const at::Tensor& x, double probability, const std::string& site,
                   const Pass& pass, const Parameter& like) {
  if (!pass.dropout_key) return x;
  const bool is_part = other_rows(like) != nullptr;
  return ops::dropout(x, probability, mask_key(pass, site),
                      is_part ? like.share->rank() * x.numel() : 0, /*whole_columns=*/0, pass.rows);
}

void add_noise(const at::Tensor& x, const Batch& batch, const Pass& pass, const Parameter& table) {
  if (!batch.noise.defined() || !pass.dropout_key) return;
  const bool is_part = other_rows(table) != nullptr;
  ops::add_noise(x, batch.noise, 1 / std::sqrt(static_cast<double>(x.size(-1))),
                 mask_key(pass, "embedding noise"), is_part ? table.share->rank() * x.size(0) : 0,
                 pass.rows);
}

at::Tensor dropout_features(const at::Tensor& x, double probability, const std::string& site,
                            const Pass& pass, const Linear& layer) {
  if (!pass.dropout_key) return x;
  const kernels::MaskKey key = mask_key(pass, site);
  if (layer.cut() != ops::Cut::Outputs) return ops::dropout(x, probability, key);
  return ops::dropout(x, probability, key, layer.first_output(), layer.weight().slice->whole[0]);
}

std::vector<at::Tensor> project(const at::Tensor& x, const std::vector<const Linear*>& layers,
                                int64_t num_rows, const Pass& pass) {
  std::vector<ops::Projection> projections;
  for (const Linear* layer : layers) projections.push_back(layer->projection(pass));
  if (layers.front()->cut() == ops::Cut::None) {
    if (const InputObserver* observer = InputObserver::current())
      for (const Linear* layer : layers) observer->show(*layer, x);
    return ops::linears(x, projections);
  }
  return ops::output_cut_linears(x, projections, num_rows, *layers.front()->weight().share);
}

at::Tensor all_rows(const at::Tensor& x, const Parameter& like, int64_t num_rows) {
  return like.share == nullptr ? x : ops::all_rows(x, num_rows, *like.share);
}

at::Tensor own_rows(const at::Tensor& x, const Parameter& like) {
  return like.share == nullptr ? x : ops::own_rows(x, *like.share);
}

at::Tensor own_features(const at::Tensor& x, const Linear& layer) {
  if (layer.cut() != ops::Cut::Inputs) return x;
  return x.narrow(1, layer.weight().slice->begin, layer.in_features()).contiguous();
}

at::Tensor replace_rows(const at::Tensor& hidden, const at::Tensor& rows, const at::Tensor& index,
                        const Parameter& like) {
  if (like.share == nullptr) return ops::replace_rows(hidden, rows, index);
  return ops::replace_shared_rows(hidden, rows, index, *like.share);
}

at::Tensor last_rows(const at::Tensor& x, const Batch& batch) {
  return x.index_select(0, batch.cu_seqlens.slice(0, 1) - 1);
}

at::Tensor logits(const at::Tensor& x, const Linear& head, const Pass& pass,
                  const ops::LogitForm& form) {
  const ops::Projection projection = head.projection(pass);
  at::Tensor own = ops::Projector(projection, x.scalar_type()).forward(x, at::kFloat);
  ops::shape_logits(own, form);
  const Parameter& weight = head.weight();
  if (!weight.slice) return own;
  return ops::join_slices(own, 1, {own.size(0), weight.slice->whole[0]}, *weight.share);
}

}  // namespace snug::nn
