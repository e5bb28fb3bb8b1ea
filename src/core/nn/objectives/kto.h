// What is learnt from answers that were rated good or bad one by one (Ethayarajh et al. 2024, KTO,
// equations 7 and 8). With r an answer's log-probability less that of the model before training:
//   desirable     w_d (1 - sigmoid(beta (r - z)))
//   undesirable   w_u (1 - sigmoid(beta (z - r)))
// z, the reference point, is the mean of r over answers to other prompts, at least 0: how far the
// model is from the one before training (an estimate of their KL divergence). It has no gradient.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/nn/objective.h"

namespace snug::nn {

// The mean over documents of their r, which is what KTO wants to know of answers to other prompts.
class LogRatios final : public Objective {
 public:
  BatchSpec batch() const override {
    return {.columns = {{.name = "reference"}}, .by_document = true};
  }
  int64_t terms(const BatchCounts& counts) const override { return counts.documents; }
  at::Tensor sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                 const Pass& pass) const override;
};

class Kto final : public Objective {
 public:
  struct Options {
    double beta = 0.1;
    double desirable_weight = 1;
    double undesirable_weight = 1;
  };
  explicit Kto(const Options& options) : options_(options) {}

  // label: 1 of a desirable answer, else 0.
  BatchSpec batch() const override {
    return {.columns = {{.name = "label"}, {.name = "reference"}}, .by_document = true};
  }
  const Objective* estimate() const override { return &ratios_; }
  // Rewards, beta times r: means over the desirable and over the undesirable answers, and their
  // distance; the reference point.
  std::vector<std::string> figures() const override {
    return {"rewards_chosen", "rewards_rejected", "rewards_margin", "kl"};
  }
  std::vector<double> figures_of(std::vector<double> means) const override;
  int64_t terms(const BatchCounts& counts) const override { return counts.documents; }
  at::Tensor sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                 const Pass& pass) const override;

 private:
  Options options_;
  LogRatios ratios_;
};

}  // namespace snug::nn
