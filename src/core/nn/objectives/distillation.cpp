// SPDX-License-Identifier: Apache-2.0
#include "core/nn/objectives/distillation.h"

#include <ATen/ops/ones_like.h>

#include "core/nn/head.h"

namespace snug::nn {

at::Tensor Distillation::sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                             const Pass& pass) const {
  return head.cross_entropy(hidden, batch, pass,
                            {.teacher = {.tokens = batch.columns[0],
                                         .beta = options_.beta,
                                         .target_weight = options_.sft_weight}});
}

at::Tensor Distillation::start_gradient(const at::Tensor& sum, const Pass& /*pass*/) const {
  return at::ones_like(sum);
}

}  // namespace snug::nn
