// What training minimises, against libtorch's own cross-entropy: an objective made of its operators
// trains a model as ours does.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/cross_entropy_loss.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/nn/head.h"
#include "core/nn/objective.h"
#include "engine/batch.h"
#include "support/pairs.h"
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
              const std::shared_ptr<const nn::Objective>& objective) {
  const int64_t per_sample = objective == nullptr ? 1 : objective->batch().documents_per_sample;
  data::SampleStore samples = tests::random_samples(static_cast<int>(8 * per_sample), 24, 5);
  if (per_sample > 1) tests::add_columns(samples, per_sample);
  tests::TinyRun run(recipe, samples, shape, tests::test_device(), dist::single_mesh(), objective);
  Trained result;
  for (int step = 0; step < 3; ++step) {
    const StepResult r = run.step(tests::eight_in(4), 1e-2);
    result.losses.push_back(r.loss);
    result.norms.push_back(r.grad_norm);
  }
  for (const nn::Parameter* parameter : run.engine.executor->parameters())
    result.values.push_back(parameter->kept().cpu().clone());
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

// Packed or padded, and with techniques: the training of whole logits.
TEST_P(ObjectiveOf, PairsTrainAsWholeLogitsDo) {
  recipe::Recipe recipe = tests::tiny_recipe();
  recipe.optimizer = {.name = "sgd", .lr = 1e-2};
  for (const bool packing : {true, false}) {
    recipe.data.packing = packing;
    const Trained whole = train(recipe, GetParam(), std::make_shared<tests::PairsOfWholeLogits>());
    EXPECT_LT(whole.losses.back(), whole.losses.front());
    for (const char* checkpointing : {"none", "all"}) {
      SCOPED_TRACE(packing ? "packed" : "padded");
      recipe::Recipe own = recipe;
      own.activation_checkpointing = checkpointing;
      own.optimizer_in_backward = own.activation_checkpointing == "all";
      const Trained ours = train(own, GetParam(), std::make_shared<tests::Pairs>());
      for (size_t step = 0; step < ours.losses.size(); ++step) {
        EXPECT_NEAR(ours.losses[step], whole.losses[step], 1e-5 * whole.losses[step]);
        EXPECT_NEAR(ours.norms[step], whole.norms[step], 1e-4 * whole.norms[step]);
      }
      for (size_t i = 0; i < ours.values.size(); ++i)
        EXPECT_TRUE(at::allclose(ours.values[i], whole.values[i], 1e-4, 1e-5)) << i;
    }
  }
}

// Plain cross-entropy, as log-probabilities whose gradient is known in the backward alone.
class AsLogProbs final : public nn::Objective {
 public:
  at::Tensor sum(const at::Tensor& hidden, const nn::Head& head, const nn::Batch& batch,
                 const nn::Pass& pass) const override {
    return at::neg(head.log_probs(hidden, batch, pass)).sum().reshape({1});
  }
};

struct Way {
  const char* name;
  void (*change)(recipe::Recipe&);
};
class LogProbsUnder : public ::testing::TestWithParam<Way> {};

// The head's backward works with the techniques that its cross-entropy never meets.
TEST_P(LogProbsUnder, TrainAsCrossEntropyDoes) {
  recipe::Recipe recipe = tests::tiny_recipe();
  recipe.optimizer = {.name = "sgd", .lr = 1e-2};
  GetParam().change(recipe);
  const Trained expected = train(recipe, "llama", nullptr);
  const Trained ours = train(recipe, "llama", std::make_shared<AsLogProbs>());
  const bool is_short = recipe.precision != "32-true";
  for (size_t step = 0; step < ours.losses.size(); ++step) {
    EXPECT_NEAR(ours.losses[step], expected.losses[step],
                (is_short ? 2e-3 : 1e-5) * expected.losses[step]);
    EXPECT_NEAR(ours.norms[step], expected.norms[step],
                (is_short ? 3e-2 : 1e-4) * expected.norms[step]);
  }
}

void adapt(recipe::Recipe& r) {
  r.lora = {.enabled = true, .r = 4, .dropout = 0.1};
  r.lora.head = true;
}

INSTANTIATE_TEST_SUITE_P(
    All, LogProbsUnder,
    ::testing::Values(Way{"Plain", [](recipe::Recipe&) {}},
                      Way{"AdapterOfTheHeadWithDropout", adapt},
                      Way{"DoRA",
                          [](recipe::Recipe& r) {
                            adapt(r);
                            r.lora.use_dora = true;
                          }},
                      Way{"FourBits",
                          [](recipe::Recipe& r) {
                            adapt(r);
                            r.quantize = "bnb.nf4";
                          }},
                      Way{"Bf16", [](recipe::Recipe& r) { r.precision = "bf16-true"; }},
                      Way{"Float16Mixed", [](recipe::Recipe& r) { r.precision = "16-mixed"; }},
                      Way{"ActivationsOffloaded",
                          [](recipe::Recipe& r) {
                            r.activation_offload = true;
                            r.activation_checkpointing = "selective";
                          }},
                      Way{"WeightsStreamed", [](recipe::Recipe& r) { r.weight_streaming = true; }},
                      Way{"AdapterOfStreamedWeights",
                          [](recipe::Recipe& r) {
                            adapt(r);
                            r.weight_streaming = true;
                          }},
                      Way{"UpdatedInTheBackward",
                          [](recipe::Recipe& r) {
                            r.optimizer_in_backward = true;
                            r.train.max_norm = 0.5;
                          }},
                      Way{"MixedWithCastsKept",
                          [](recipe::Recipe& r) {
                            r.precision = "bf16-mixed";
                            r.cast_cache = true;
                          }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Objective, LogProbsOfDocumentsMakeUpTheLoss) {
  const data::SampleStore samples = tests::random_samples(16, 24, 5);
  data::SampleStore pairs = samples;
  pairs.group(2);
  recipe::Recipe recipe = tests::tiny_recipe();
  recipe.train.micro_batch_size = 3;
  tests::TinyRun of_pairs(recipe, pairs);
  tests::TinyRun plain(recipe, samples);
  const std::vector<double> sums = of_pairs.run.log_probs(*of_pairs.batches, 8);
  ASSERT_EQ(sums.size(), 16);
  for (const int64_t document : {0, 7, 15}) {
    const std::vector<int64_t> own = {document};
    const auto batch = plain.batches->make(own);
    const double loss = plain.engine.executor->objective(to_device(*batch, plain.engine.device),
                                                         {.compute = at::kFloat});
    EXPECT_NEAR(-sums[static_cast<size_t>(document)], loss, 1e-5 * std::max(1.0, loss));
  }
}

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

// A head that scores documents is asked for by the objective, and goes with no other.
TEST(Objective, ScoresAreOfModelsWithSuchAHeadOnWholeTexts) {
  recipe::Recipe scores = tests::tiny_recipe(), answers = scores;
  scores.objective = recipe::objective_defaults("classification");
  const auto model = tests::model_for(scores);
  EXPECT_EQ(model->labels().size(), 2U);
  EXPECT_EQ(model->hugging_face_config()["architectures"][0], "LlamaForSequenceClassification");
  check_objective(*model, scores);
  EXPECT_THROW(check_objective(*model, answers), UserError);
  EXPECT_THROW(check_objective(*tests::tiny_model(), scores), UserError);
  for (const auto& [axis, works] :
       {std::pair(dist::Axis::Tensor, false), std::pair(dist::Axis::Context, false),
        std::pair(dist::Axis::Shard, true), std::pair(dist::Axis::Pipeline, true)}) {
    dist::MeshShape shape;
    shape[axis] = 2;
    const auto mesh = dist::planned_mesh(shape, 0);
    if (works)
      EXPECT_NE(training_objective(*model, scores, *mesh), nullptr);
    else
      EXPECT_THROW(training_objective(*model, scores, *mesh), UserError);
  }
  // transformers has no such class of these.
  EXPECT_THROW(tests::model_for(scores, "granite"), UserError);
  EXPECT_THROW(tests::model_for(scores, "t5"), UserError);
  // One score is no class.
  models::Checkpoint reward;
  recipe::Recipe rewards = scores;
  rewards.objective = recipe::objective_defaults("reward");
  reward.model = tests::model_for(rewards);
  EXPECT_EQ(reward.model->labels().size(), 1U);
  EXPECT_THROW(prepare_head(reward, scores, nullptr), UserError);
}

}  // namespace
}  // namespace snug::engine
