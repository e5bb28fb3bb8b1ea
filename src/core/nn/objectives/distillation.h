// What is learnt from a teacher: of each target how far the model's probabilities are from the
// teacher's, over its most likely tokens and one more outcome for all others
// (core/kernels/divergence.h), and beside that, weighed, cross-entropy. The teacher is not there:
// what it says of each target is a column of the batch. No softening temperature: the teacher's
// probability of all others is known at temperature 1 alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/nn/objective.h"

namespace snug::nn {

class Distillation final : public Objective {
 public:
  struct Options {
    int64_t top_k = 64;  // tokens of the teacher's
    double beta = 0;     // 0: forward, 1: reverse divergence, between: Jensen-Shannon's
    double sft_weight = 0;
  };
  explicit Distillation(const Options& options) : options_(options) {}

  // Of each target, its ids and then their log-probabilities.
  BatchSpec batch() const override {
    return {
        .columns = {{.name = kTeacher, .per = Column::Per::Target, .width = 2 * options_.top_k}}};
  }
  // The mean -log p of the targets, also where it has no weight.
  std::vector<std::string> figures() const override { return {"sft_loss"}; }
  at::Tensor sum(const at::Tensor& hidden, const Head& head, const Batch& batch,
                 const Pass& pass) const override;
  // Ones: as of cross-entropy.
  at::Tensor start_gradient(const at::Tensor& sum, const Pass& pass) const override;

  static constexpr const char* kTeacher = "teacher";

 private:
  Options options_;
};

}  // namespace snug::nn
