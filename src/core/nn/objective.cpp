// SPDX-License-Identifier: Apache-2.0
#include "core/nn/objective.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>

#include <optional>

#include "core/nn/head.h"
#include "core/ops/cross_entropy.h"

namespace snug::nn {

at::Tensor Objective::start_gradient(const at::Tensor& sum, const Pass& pass) const {
  return at::full_like(sum, pass.gradient_scale);
}

at::Tensor CrossEntropy::sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                             const Pass& pass) const {
  const Linear& layer = head.vocabulary();
  std::optional<ops::VocabularyPart> part;
  if (const auto& slice = layer.weight().slice)
    part = ops::VocabularyPart{
        .share = *layer.weight().share, .first = slice->begin, .whole = slice->whole[0]};
  const ops::Projection projection = layer.projection(pass);
  // The head's dropout numbers rows by their position in the batch.
  const bool drops = projection.adapter && projection.adapter->dropout > 0;
  return ops::linear_cross_entropy(hidden, projection, batch.targets,
                                   {.ignore_index = options_.ignore_index,
                                    .scale = pass.gradient_scale,
                                    .label_smoothing = options_.label_smoothing,
                                    .z_loss = options_.z_loss,
                                    .form = head.form()},
                                   part, drops ? ops::CountedRows{} : batch.counted);
}

at::Tensor CrossEntropy::start_gradient(const at::Tensor& sum, const Pass& /*pass*/) const {
  return at::ones_like(sum);
}

const Objective& objective_of(const Pass& pass) {
  static const CrossEntropy plain;
  return pass.objective != nullptr ? *pass.objective : plain;
}

}  // namespace snug::nn
