// SPDX-License-Identifier: Apache-2.0
#include "core/nn/objectives/preference.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/log.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/square.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/threshold.h>

#include "core/nn/head.h"
#include "core/nn/objectives/affine.h"

namespace snug::nn {
namespace {

// Here threshold stands for clamp and relu, which have no gradient on meta.

// log(p / (1 - p)) of log p. An answer as good as certain has no larger odds: those of p = 1 are
// infinite, and their gradient is no number.
at::Tensor log_odds(const at::Tensor& log_p) {
  constexpr double kCertain = 1e-6;
  const at::Tensor below = at::neg(at::threshold(at::neg(log_p), kCertain, kCertain));
  return at::sub(below, at::log(at::neg(at::expm1(below))));
}

}  // namespace

BatchSpec Preference::batch() const {
  BatchSpec spec{.documents_per_sample = 2, .by_document = true};
  if (has_reference(options_.kind)) spec.columns.push_back({.name = "reference"});
  return spec;
}

at::Tensor Preference::sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                           const Pass& pass) const {
  at::Tensor answers = document_sums(head.log_probs(hidden, batch, pass), batch);
  const bool needs_means = takes_means() || options_.sft_weight > 0;
  const at::Tensor lengths = needs_means ? document_targets(batch) : at::Tensor();
  const at::Tensor own = answers;
  if (has_reference(options_.kind)) answers = at::sub(answers, batch.columns[0]);
  // Rewards beside a reference are of whole answers, also where the loss is of means.
  const at::Tensor whole = answers.detach();
  if (takes_means()) answers = at::div(answers, lengths);
  const at::Tensor pairs = answers.view({-1, 2});
  at::Tensor all = losses(pairs.select(1, 0), pairs.select(1, 1));
  const bool is_orpo = options_.kind == Kind::Orpo;
  const double sft_weight = options_.sft_weight + (is_orpo ? 1 : 0);
  if (sft_weight > 0) all = all.add(at::div(own, lengths).view({-1, 2}).select(1, 0), -sft_weight);
  const at::Tensor rewarded = has_reference(options_.kind) ? whole.view({-1, 2}) : pairs.detach();
  const at::Tensor chosen = rewarded.select(1, 0), rejected = rewarded.select(1, 1);
  const at::Tensor is_above = at::gt(chosen, rejected).to(at::kFloat);
  const at::Tensor figures =
      at::stack({times(chosen, options_.beta), times(rejected, options_.beta), is_above,
                 times(at::sub(chosen, rejected), options_.beta)})
          .sum(1);
  return at::cat({all.sum().reshape({1}), figures});
}

at::Tensor Preference::log_sigmoid_losses(const at::Tensor& x) const {
  const at::Tensor losses = at::softplus(at::neg(x));
  const double smoothing = options_.label_smoothing;
  return smoothing == 0 ? losses : times(losses, 1 - smoothing).add(at::softplus(x), smoothing);
}

at::Tensor Preference::losses(const at::Tensor& chosen, const at::Tensor& rejected) const {
  const at::Tensor x = at::sub(chosen, rejected);
  const double beta = options_.beta;
  switch (options_.kind) {
    case Kind::Hinge:
      return at::threshold(line(x, -beta, 1), 0, 0);
    case Kind::Ipo:
      return at::square(line(x, 1, -1 / (2 * beta)));
    case Kind::Simpo:
      return log_sigmoid_losses(line(x, beta, -options_.gamma));
    case Kind::Orpo:
      return times(at::softplus(at::sub(log_odds(rejected), log_odds(chosen))), beta);
    default:
      return log_sigmoid_losses(times(x, beta));
  }
}

}  // namespace snug::nn
