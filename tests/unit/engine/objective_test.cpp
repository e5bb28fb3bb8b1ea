// What training minimises, against libtorch's own cross-entropy: an objective made of its operators
// trains a model as ours does.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/cross_entropy_loss.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/nn/head.h"
#include "core/nn/objective.h"
#include "support/tiny_training.h"

namespace snug::engine {
namespace {

// Through autograd: the sum's gradient starts as the scale of the pass.
class LibtorchCrossEntropy final : public nn::Objective {
 public:
  explicit LibtorchCrossEntropy(double smoothing) : smoothing_(smoothing) {}
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& head, const nn::Batch& batch,
                 const nn::Pass& pass) const override {
    return at::cross_entropy_loss(head.logits(hidden, pass).to(at::kFloat),
                                  batch.targets.to(at::kLong), {}, at::Reduction::Sum, -100,
                                  smoothing_)
        .reshape({1});
  }

 private:
  double smoothing_;
};

// Counts documents, not tokens.
class PerDocument final : public nn::Objective {
 public:
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& head, const nn::Batch& batch,
                 const nn::Pass& pass) const override {
    return nn::CrossEntropy().sum(hidden, head, batch, pass);
  }
  at::Tensor start_gradient(const at::Tensor& sum, const nn::Pass& pass) const override {
    return nn::CrossEntropy().start_gradient(sum, pass);
  }
  int64_t terms(const nn::BatchCounts& counts) const override { return counts.documents; }
};

struct Trained {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> values;
};

Trained train(const recipe::Recipe& recipe, const std::string& shape,
              std::shared_ptr<const nn::Objective> objective) {
  const data::SampleStore samples = tests::random_samples(8, 24, 5);
  tests::TinyRun run(recipe, samples, shape);
  if (objective != nullptr) run.engine.objective = std::move(objective);
  Trained result;
  for (int step = 0; step < 3; ++step) {
    const StepResult r = run.step(tests::eight_in(4), 1e-2);
    result.losses.push_back(r.loss);
    result.norms.push_back(r.grad_norm);
  }
  for (const nn::Parameter* parameter : run.engine.executor->parameters())
    result.values.push_back(parameter->value.cpu().clone());
  return result;
}

class ObjectiveOf : public ::testing::TestWithParam<const char*> {};

TEST_P(ObjectiveOf, LibtorchsCrossEntropyTrainsAlike) {
  recipe::Recipe recipe = tests::tiny_recipe();
  recipe.train.label_smoothing = 0.1;
  recipe.optimizer = {.name = recipe.optimizer.name, .lr = 1e-2};
  const Trained ours = train(recipe, GetParam(), nullptr);
  const Trained theirs = train(recipe, GetParam(), std::make_shared<LibtorchCrossEntropy>(0.1));
  for (size_t step = 0; step < ours.losses.size(); ++step) {
    EXPECT_NEAR(ours.losses[step], theirs.losses[step], 2e-5 * ours.losses[step]);
    EXPECT_NEAR(ours.norms[step], theirs.norms[step], 1e-3 * ours.norms[step]);
  }
  EXPECT_LT(ours.losses.back(), ours.losses.front());
}

INSTANTIATE_TEST_SUITE_P(Families, ObjectiveOf,
                         ::testing::Values("llama", "gemma2", "granite", "gpt2", "opt"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Objective, TheMeanIsOverItsOwnTerms) {
  const recipe::Recipe recipe = tests::tiny_recipe();
  const data::SampleStore samples = tests::random_samples(8, 24, 5);
  const double by_token = train(recipe, "llama", nullptr).losses.front();
  const double by_document = train(recipe, "llama", std::make_shared<PerDocument>()).losses.front();
  tests::TinyRun run(recipe, samples);
  const StepResult counts = run.step(tests::eight_in(4), 0);
  EXPECT_NEAR(by_document * 8, by_token * static_cast<double>(counts.loss_tokens),
              1e-5 * by_document * 8);
}

}  // namespace
}  // namespace snug::engine
