// Learning from a teacher against TRL's divergence (tests/oracles/distillation.py wrote the
// expected values): the loss, its gradients and ten AdamW steps, of all weights and of adapters,
// with the teacher's whole vocabulary and with its most likely tokens.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "data/micro_batch.h"
#include "data/sample_store.h"
#include "engine/batch.h"
#include "engine/run.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "parity/objective_parity.h"
#include "support/source_dir.h"
#include "support/test_device.h"

namespace snug {
namespace distillation_parity_test {

using tests::ParityBase;
using tests::read;

constexpr int64_t kRows = 8, kVocabulary = 96;
constexpr double kTolerance = 1e-5;

struct Case {
  const char* name;
  int64_t top_k;
  double beta, sft_weight;
};
const Case kCases[] = {{"forward", kVocabulary, 0, 0},
                       {"reverse", kVocabulary, 1, 0},
                       {"jensen-shannon", kVocabulary, 0.5, 0},
                       {"forward-top", 8, 0, 0},
                       {"reverse-top", 8, 1, 0.25},
                       {"jensen-shannon-top", 8, 0.3, 0.5}};

// What the teacher says of each target, for all tokens of the samples.
data::ColumnOfNumbers column_of(const data::SampleStore& samples, const at::Tensor& teacher,
                                int64_t top_k) {
  data::ColumnOfNumbers column{.is_per_target = true, .width = 2 * top_k};
  int64_t target = 0;
  for (int64_t i = 0; i < samples.count(); ++i)
    for (const int32_t stored : samples.stored_ids(i))
      if (stored < 0) {
        column.values.insert(column.values.end(), static_cast<size_t>(2 * top_k), 0.F);
      } else {
        const auto* const row = teacher[target++].const_data_ptr<float>();
        column.values.insert(column.values.end(), row, row + top_k);
        column.values.insert(column.values.end(), row + kVocabulary, row + kVocabulary + top_k);
      }
  return column;
}

class DistillationParity : public ::testing::TestWithParam<std::tuple<ParityBase, Case>> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }

  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
    samples_.set_columns(
        {column_of(samples_, read(*expected_, std::string(base_.name) + ".teacher"), case_.top_k)});
    checkpoint_ = models::open_checkpoint(tests::source_dir() / "tests/data/parity" / base_.name);
    recipe_ = tests::parity_recipe(base_,
                                   {.name = recipe::ObjectiveName::Distill,
                                    .beta = case_.beta,
                                    .sft_weight = case_.sft_weight,
                                    .top_k = case_.top_k},
                                   kRows);
    run_ = std::make_unique<engine::Run>(
        *checkpoint_.model, recipe_, batches_,
        engine::RunOptions{.device = tests::test_device(), .longest = 128});
    tests::load_start(checkpoint_, *expected_, base_);
    run_->engine().weights_changed();
  }

  at::Tensor expected(const char* what) const {
    return read(*expected_, fmt::format("{}.{}.{}", base_.name, case_.name, what));
  }

  const ParityBase base_ = std::get<0>(GetParam());
  const Case case_ = std::get<1>(GetParam());
  recipe::Recipe recipe_;
  models::Checkpoint checkpoint_;
  std::unique_ptr<files::TensorSource> expected_ =
      files::open_safetensors(tests::source_dir() / "tests/data/parity/distillation.safetensors");
  data::SampleStore samples_ = tests::answers_in(*expected_, "taught");
  data::TokenBatchSource batches_{samples_, {}};
  std::unique_ptr<engine::Run> run_;
};

TEST_P(DistillationParity, Gradients) {
  std::vector<int64_t> all(kRows);
  std::iota(all.begin(), all.end(), 0);
  const engine::Engine& engine = run_->engine();
  const nn::Batch batch = engine::to_device(*batches_.make(all), tests::test_device());
  const auto targets = static_cast<double>(batch.loss_tokens);
  const double sum = engine.executor->forward_backward(
      batch, {.gradient_scale = 1 / targets, .objective = engine.objective.get()});
  const double loss = expected("first")[0].item<double>();
  EXPECT_NEAR(sum / targets, loss, kTolerance * std::max(0.1, loss));
  const std::string prefix = fmt::format("{}.{}.grad.", base_.name, case_.name);
  const size_t compared = tests::expect_gradients(engine, *expected_, prefix, kTolerance);
  // The first case has all of them.
  EXPECT_GE(compared, case_.name == std::string("forward") ? engine.parameters.size() : size_t{1});
}

TEST_P(DistillationParity, AdamWSteps) {
  const at::Tensor steps = expected("steps");
  for (int64_t step = 0; step < steps.size(0); ++step) {
    const engine::StepResult result = run_->step({{0, 1}, {2, 3}, {4, 5}, {6, 7}}, base_.lr);
    const double loss = steps[step][0].item<double>(), plain = steps[step][1].item<double>();
    EXPECT_NEAR(result.loss, loss, kTolerance * std::max(1.0, loss)) << step;
    ASSERT_EQ(result.figures.size(), 1);
    // It is not what is minimised: roundings of ten steps move it more than the loss.
    EXPECT_NEAR(result.figures[0], plain, 2 * kTolerance * plain) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, DistillationParity,
    ::testing::Combine(::testing::ValuesIn(tests::kAnswerBases), ::testing::ValuesIn(kCases)),
    tests::base_and_case<::testing::TestParamInfo<DistillationParity::ParamType>>);

}  // namespace distillation_parity_test
}  // namespace snug
