// Preference training against TRL's trainers (tests/oracles/preferences.py wrote the expected
// values): the loss, its figures and gradients beside another model as the reference, the model's
// own log-probabilities, and ten AdamW steps beside it as it was; of all weights and of adapters.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
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
namespace preference_parity_test {

namespace fs = std::filesystem;

using recipe::ObjectiveName;
using tests::expect_close;
using tests::ParityBase;
using tests::read;

constexpr int64_t kPairs = 4;  // of a step, in two micro-batches
constexpr double kTolerance = 1e-5;

struct Case {
  const char* name;
  recipe::ObjectiveOptions options;
  const char* rows = "pairs";
};

const Case kCases[] = {
    {"dpo", {.name = ObjectiveName::Dpo, .beta = 0.1}},
    {"dpo-smoothed", {.name = ObjectiveName::Dpo, .beta = 0.2, .label_smoothing = 0.2}},
    {"dpo-sft", {.name = ObjectiveName::Dpo, .beta = 0.3, .sft_weight = 0.5}},
    {"dpo-normalized", {.name = ObjectiveName::Dpo, .beta = 0.5, .length_normalized = true}},
    {"ipo", {.name = ObjectiveName::Ipo, .beta = 0.5}},
    {"hinge", {.name = ObjectiveName::Hinge, .beta = 0.25}},
    {"cpo", {.name = ObjectiveName::Cpo, .beta = 0.1, .sft_weight = 1}},
    {"cpo-smoothed", {.name = ObjectiveName::Cpo, .beta = 0.2, .label_smoothing = 0.1}},
    {"simpo", {.name = ObjectiveName::Simpo, .beta = 2, .gamma = 1}},
    {"simpo-sft",
     {.name = ObjectiveName::Simpo,
      .beta = 1.5,
      .gamma = 0.6,
      .label_smoothing = 0.1,
      .sft_weight = 0.5}},
    // TRL learns the prompt too: here it is one token, which nothing predicts.
    {"orpo", {.name = ObjectiveName::Orpo, .beta = 0.3}, "bare"},
};

class PreferenceParity : public ::testing::TestWithParam<std::tuple<ParityBase, Case>> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }

  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
    const fs::path data = tests::source_dir() / "tests/data/parity";
    expected_ = files::open_safetensors(data / "preferences.safetensors");
    checkpoint_ = models::open_checkpoint(data / base_.name);
    recipe_ = tests::parity_recipe(base_, case_.options, kPairs);
    read_samples();
    start();
  }

  void read_samples() {
    samples_ = tests::answers_in(*expected_, case_.rows);
    samples_.group(2);
    // TRL computes both answers apart; ours may share the prompt, as here beside adapters.
    if (base_.has_adapters) samples_.share_prompts(/*least=*/0);
  }

  void start() {
    run_ = std::make_unique<engine::Run>(
        *checkpoint_.model, recipe_, batches_,
        engine::RunOptions{.device = tests::test_device(), .longest = 128});
    tests::load_start(checkpoint_, *expected_, base_);
    run_->engine().weights_changed();
  }

  bool has_reference() const { return !run_->engine().objective->batch().columns.empty(); }
  // One number for each answer.
  void set_reference(const std::vector<double>& numbers) {
    samples_.set_columns({{.values = {numbers.begin(), numbers.end()}}});
  }
  void set_other_as_reference() {
    if (!has_reference()) return;
    const at::Tensor other = read(*expected_, std::string(base_.name) + ".reference");
    const auto* const numbers = other.const_data_ptr<float>();
    set_reference({numbers, numbers + other.numel()});
  }

  at::Tensor expected(const char* what) const {
    return read(*expected_, fmt::format("{}.{}.{}", base_.name, case_.name, what));
  }

  // `expected`: (5), the loss and its figures. Those are made of differences between
  // log-probabilities of some tens, whose rounding is all that is left of a figure near 0.
  void expect_values(const std::string& where, double loss, std::vector<double> figures,
                     const at::Tensor& expected) const {
    std::vector<std::string> names = run_->engine().objective->figures();
    ASSERT_EQ(figures.size(), names.size());
    names.insert(names.begin(), "loss");
    figures.insert(figures.begin(), loss);
    for (size_t i = 0; i < names.size(); ++i) {
      if (!is_comparable(names[i], expected)) continue;
      const double wanted = expected[static_cast<int64_t>(i)].item<double>();
      EXPECT_NEAR(figures[i], wanted, kTolerance * std::max(1.0, std::abs(wanted)))
          << where << names[i];
    }
  }

  static bool is_comparable(const std::string& name, const at::Tensor& expected) {
    // Beside the model itself, before it trains, only rounding puts one answer above the other.
    const double margin = expected[4].item<double>();
    return name != "rewards_accuracy" || std::abs(margin) > 1e-4;
  }

  const ParityBase base_ = std::get<0>(GetParam());
  const Case case_ = std::get<1>(GetParam());
  recipe::Recipe recipe_;
  models::Checkpoint checkpoint_;
  std::unique_ptr<files::TensorSource> expected_;
  data::SampleStore samples_;
  data::TokenBatchSource batches_{samples_, {}};
  std::unique_ptr<engine::Run> run_;
};

TEST_P(PreferenceParity, LossAndFigures) {
  set_other_as_reference();
  const engine::StepResult result = run_->step({{0, 1}, {2, 3}}, /*lr=*/0);
  expect_values("", result.loss, result.figures, expected("first"));
}

TEST_P(PreferenceParity, Gradients) {
  set_other_as_reference();
  const std::vector<int64_t> pairs = {0, 1, 2, 3};
  const engine::Engine& engine = run_->engine();
  const double sum = engine.executor->forward_backward(
      engine::to_device(*batches_.make(pairs), tests::test_device()),
      {.gradient_scale = 1.0 / kPairs, .objective = engine.objective.get()});
  const double loss = expected("first")[0].item<double>();
  EXPECT_NEAR(sum / kPairs, loss, kTolerance * loss);
  const std::string prefix = fmt::format("{}.{}.grad.", base_.name, case_.name);
  const size_t compared = tests::expect_gradients(engine, *expected_, prefix, kTolerance);
  // The first case has all of them.
  EXPECT_GE(compared, case_.name == std::string("dpo") ? engine.parameters.size() : size_t{1});
}

TEST_P(PreferenceParity, AdamWSteps) {
  if (has_reference()) {
    const std::vector<double> before = run_->log_probs(batches_, samples_.count());
    expect_close("log-probabilities", at::tensor(before).to(at::kFloat),
                 read(*expected_, std::string(base_.name) + ".before"), kTolerance);
    set_reference(before);
  }
  const at::Tensor steps = expected("steps");
  for (int64_t step = 0; step < steps.size(0); ++step) {
    const int64_t first = step * kPairs % samples_.count();
    const engine::StepResult result =
        run_->step({{first, first + 1}, {first + 2, first + 3}}, base_.lr);
    expect_values(fmt::format("step {}: ", step), result.loss, result.figures, steps[step]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, PreferenceParity,
    ::testing::Combine(::testing::ValuesIn(tests::kAnswerBases), ::testing::ValuesIn(kCases)),
    tests::base_and_case<::testing::TestParamInfo<PreferenceParity::ParamType>>);

}  // namespace preference_parity_test
}  // namespace snug
