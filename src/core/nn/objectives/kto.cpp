// SPDX-License-Identifier: Apache-2.0
#include "core/nn/objectives/kto.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "base/error.h"
#include "core/nn/head.h"
#include "core/nn/objectives/affine.h"

namespace snug::nn {
namespace {

// (S): log-probabilities less those in `reference` (S).
at::Tensor log_ratios(const at::Tensor& hidden, const Head& head, const Batch& batch,
                      const Pass& pass, const at::Tensor& reference) {
  return at::sub(document_sums(head.log_probs(hidden, batch, pass), batch), reference);
}

}  // namespace

at::Tensor LogRatios::sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                          const Pass& pass) const {
  return log_ratios(hidden, head, batch, pass, batch.columns[0]).sum().reshape({1});
}

at::Tensor Kto::sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                    const Pass& pass) const {
  SNUG_CHECK(batch.estimate.defined(), "a batch of {} answers without a reference point",
             batch.columns[0].size(0));
  const at::Tensor& label = batch.columns[0];
  const at::Tensor ratios = log_ratios(hidden, head, batch, pass, batch.columns[1]);
  const at::Tensor point = at::threshold(batch.estimate, 0, 0);
  // -1 of a desirable answer: 1 - sigmoid(x) is sigmoid(-x).
  const at::Tensor side = line(label, -2, 1);
  const at::Tensor weight = line(label, options_.desirable_weight - options_.undesirable_weight,
                                 options_.undesirable_weight);
  const at::Tensor x = at::mul(side, times(at::sub(ratios, point), options_.beta));
  const at::Tensor losses = at::mul(weight, at::sigmoid(x));
  const at::Tensor rewards = times(ratios.detach(), options_.beta);
  const at::Tensor of_desirable = at::mul(rewards, label);
  const at::Tensor figures = at::stack({of_desirable, at::sub(rewards, of_desirable), label,
                                        at::zeros_like(rewards).add(point)})
                                 .sum(1);
  return at::cat({losses.sum().reshape({1}), figures});
}

// A mean over the desirable answers is one over all, divided by their share; without any it is no
// number. Shares are added up of micro-batches', so that none may be a last bit.
std::vector<double> Kto::figures_of(std::vector<double> means) const {
  constexpr double kNone = 1e-9;
  const auto of_share = [](double mean, double share) {
    return share > kNone ? mean / share : std::numeric_limits<double>::quiet_NaN();
  };
  const double chosen = of_share(means.at(0), means.at(2));
  const double rejected = of_share(means.at(1), 1 - means.at(2));
  return {chosen, rejected, chosen - rejected, means.at(3)};
}

}  // namespace snug::nn
