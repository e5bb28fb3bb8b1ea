// What is learnt from which of two answers is better. With c and r the log-probabilities of the
// chosen and the rejected answer, less those of the reference where there is one, and x = c - r:
//   dpo    -log sigmoid(beta x)                                   Rafailov et al. 2023, equation 7
//          or of means over tokens: length-normalized           Lambert et al. 2024 (Tulu 3)
//   hinge  max(0, 1 - beta x)                                     Zhao et al. 2023 (SLiC)
//   ipo    (x - 1 / (2 beta))^2, of means over tokens             Azar et al. 2023, equation 17
//   cpo    -log sigmoid(beta x), without a reference              Xu et al. 2024
//   simpo  -log sigmoid(beta x - gamma), of means, without one    Meng et al. 2024, equation 6
//   orpo   -beta log sigmoid(log odds of c - log odds of r), of means, without one, beside the
//          mean -log p of the chosen answer               Hong et al. 2024, equations 6 and 7
// Label smoothing e takes (1 - e) of -log sigmoid(x) and e of -log sigmoid(-x). sft_weight adds the
// chosen answer's mean -log p.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/nn/objective.h"

namespace snug::nn {

class Preference final : public Objective {
 public:
  enum class Kind { Dpo, Hinge, Ipo, Cpo, Simpo, Orpo };
  struct Options {
    Kind kind = Kind::Dpo;
    double beta = 0.1;
    double gamma = 0;
    double label_smoothing = 0;
    double sft_weight = 0;
    bool length_normalized = false;  // dpo's
  };
  explicit Preference(const Options& options) : options_(options) {}

  // Beside the model before training.
  static bool has_reference(Kind kind) {
    return kind == Kind::Dpo || kind == Kind::Hinge || kind == Kind::Ipo;
  }
  // Of the answers' tokens, in place of their sums.
  static bool takes_means(Kind kind) {
    return kind == Kind::Ipo || kind == Kind::Simpo || kind == Kind::Orpo;
  }

  BatchSpec batch() const override;
  // Of each pair: rewards, beta times c and r, ipo's without its mean; whether c is above r; their
  // margin.
  std::vector<std::string> figures() const override {
    return {"rewards_chosen", "rewards_rejected", "rewards_accuracy", "rewards_margin"};
  }
  int64_t terms(const BatchCounts& counts) const override { return counts.documents / 2; }
  at::Tensor sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                 const Pass& pass) const override;

 private:
  bool takes_means() const { return takes_means(options_.kind) || options_.length_normalized; }
  // (S/2) of c and r, (S/2) each.
  at::Tensor losses(const at::Tensor& chosen, const at::Tensor& rejected) const;
  at::Tensor log_sigmoid_losses(const at::Tensor& x) const;

  Options options_;
};

}  // namespace snug::nn
