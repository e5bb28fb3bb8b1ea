// KTO against TRL's trainer (tests/oracles/kto.py wrote the expected values): which answers are put
// behind other prompts, the loss, its figures and gradients beside another model as the reference,
// and ten AdamW steps beside the model as it was; of all weights and of adapters. TRL takes all
// rows of a step at once, we take them two by two.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "data/micro_batch.h"
#include "data/mismatched.h"
#include "data/sample_store.h"
#include "engine/batch.h"
#include "engine/run.h"
#include "engine/steps/validation.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "parity/objective_parity.h"
#include "support/source_dir.h"
#include "support/test_device.h"

namespace snug {
namespace kto_parity_test {

namespace fs = std::filesystem;

using recipe::ObjectiveName;
using tests::answers_in;
using tests::expect_close;
using tests::ParityBase;
using tests::read;

constexpr int64_t kRows = 8;
constexpr double kTolerance = 1e-5;
const engine::SampleIndices kStep = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};

struct Case {
  const char* name;
  recipe::ObjectiveOptions options;
};
const Case kCases[] = {{"kto", {.name = ObjectiveName::Kto, .beta = 0.1}},
                       {"kto-weighted",
                        {.name = ObjectiveName::Kto,
                         .beta = 0.3,
                         .desirable_weight = 1.3,
                         .undesirable_weight = 0.6}}};

std::unique_ptr<files::TensorSource> open_expected() {
  return files::open_safetensors(tests::source_dir() / "tests/data/parity/kto.safetensors");
}

std::vector<float> numbers_of(const at::Tensor& tensor) {
  const auto* const numbers = tensor.const_data_ptr<float>();
  return {numbers, numbers + tensor.numel()};
}

TEST(Mismatched, TakesTheAnswersThatTrlTakes) {
  const auto file = open_expected();
  const data::SampleStore samples = answers_in(*file, "rated"),
                          expected = answers_in(*file, "others");
  EXPECT_EQ(data::mismatch(samples), 1);
  const data::SampleStore others = data::mismatched(samples, 1, 0);
  ASSERT_EQ(others.count(), expected.count());
  for (int64_t i = 0; i < others.count(); ++i) {
    EXPECT_EQ(others.sample(i).ids, expected.sample(i).ids) << i;
    EXPECT_EQ(others.sample(i).labels, expected.sample(i).labels) << i;
  }
}

class KtoParity : public ::testing::TestWithParam<std::tuple<ParityBase, Case>> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }

  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
    checkpoint_ = models::open_checkpoint(tests::source_dir() / "tests/data/parity" / base_.name);
    recipe_ = tests::parity_recipe(base_, case_.options, kRows);
    run_ = std::make_unique<engine::Run>(
        *checkpoint_.model, recipe_, batches_,
        engine::RunOptions{.device = tests::test_device(), .longest = 128});
    tests::load_start(checkpoint_, *expected_, base_);
    run_->engine().weights_changed();
  }

  // Log-probabilities of the rows, then of the others.
  void set_reference(const std::vector<float>& numbers) {
    ASSERT_EQ(numbers.size(), 2 * kRows);
    samples_.set_columns({{.values = numbers_of(read(*expected_, "rated.desirable"))},
                          {.values = {numbers.begin(), numbers.begin() + kRows}}});
    others_.set_columns({{.values = {numbers.begin() + kRows, numbers.end()}}});
  }
  void set_other_as_reference() {
    set_reference(numbers_of(read(*expected_, std::string(base_.name) + ".reference")));
  }

  at::Tensor expected(const char* what) const {
    return read(*expected_, fmt::format("{}.{}.{}", base_.name, case_.name, what));
  }

  // `expected`: (5), the loss and its figures. Those are made of differences between
  // log-probabilities of some tens, whose rounding is all that is left of a figure near 0.
  void expect_values(const std::string& where, const engine::StepResult& result,
                     const at::Tensor& expected) const {
    std::vector<std::string> names = run_->engine().objective->figures();
    ASSERT_EQ(result.figures.size(), names.size());
    names.insert(names.begin(), "loss");
    for (size_t i = 0; i < names.size(); ++i) {
      const double wanted = expected[static_cast<int64_t>(i)].item<double>();
      EXPECT_NEAR(i == 0 ? result.loss : result.figures[i - 1], wanted,
                  kTolerance * std::max(1.0, std::abs(wanted)))
          << where << names[i];
    }
  }

  const ParityBase base_ = std::get<0>(GetParam());
  const Case case_ = std::get<1>(GetParam());
  recipe::Recipe recipe_;
  models::Checkpoint checkpoint_;
  std::unique_ptr<files::TensorSource> expected_ = open_expected();
  data::SampleStore samples_ = answers_in(*expected_, "rated"),
                    others_ = data::mismatched(samples_, data::mismatch(samples_), 0);
  data::TokenBatchSource batches_{samples_, others_, {}};
  std::unique_ptr<engine::Run> run_;
};

TEST_P(KtoParity, LossAndFigures) {
  set_other_as_reference();
  expect_values("", run_->step(kStep, /*lr=*/0), expected("first"));
}

TEST_P(KtoParity, Gradients) {
  set_other_as_reference();
  std::vector<int64_t> all(kRows);
  std::iota(all.begin(), all.end(), 0);
  const engine::Engine& engine = run_->engine();
  const double kl =
      engine::estimate(*engine.executor, batches_, {all}, {.objective = engine.objective.get()});
  nn::Batch batch = engine::to_device(*batches_.make(all), tests::test_device());
  engine::set_estimate(batch, kl, tests::test_device());
  const double sum = engine.executor->forward_backward(
      batch, {.gradient_scale = 1.0 / kRows, .objective = engine.objective.get()});
  const double loss = expected("first")[0].item<double>();
  EXPECT_NEAR(sum / kRows, loss, kTolerance * loss);
  const std::string prefix = fmt::format("{}.{}.grad.", base_.name, case_.name);
  const size_t compared = tests::expect_gradients(engine, *expected_, prefix, kTolerance);
  // The first case has all of them.
  EXPECT_GE(compared, case_.name == std::string("kto") ? engine.parameters.size() : size_t{1});
}

TEST_P(KtoParity, AdamWSteps) {
  std::vector<double> before = run_->log_probs(batches_, kRows);
  const std::vector<double> of_others = run_->log_probs(*batches_.others(), kRows);
  before.insert(before.end(), of_others.begin(), of_others.end());
  expect_close("log-probabilities", at::tensor(before).to(at::kFloat),
               read(*expected_, std::string(base_.name) + ".before"), kTolerance);
  set_reference({before.begin(), before.end()});
  const at::Tensor steps = expected("steps");
  for (int64_t step = 0; step < steps.size(0); ++step)
    expect_values(fmt::format("step {}: ", step), run_->step(kStep, base_.lr), steps[step]);
}

INSTANTIATE_TEST_SUITE_P(Cases, KtoParity,
                         ::testing::Combine(::testing::ValuesIn(tests::kAnswerBases),
                                            ::testing::ValuesIn(kCases)),
                         tests::base_and_case<::testing::TestParamInfo<KtoParity::ParamType>>);

}  // namespace kto_parity_test
}  // namespace snug
