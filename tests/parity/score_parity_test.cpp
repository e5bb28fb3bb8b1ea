// Heads that score documents against transformers', peft's and TRL's (tests/oracles/score_heads.py
// wrote the expected values): scores, loss, gradients and ten AdamW steps, of all weights and of
// adapters, packed and padded; and folders that those write, read.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "data/document_sample.h"
#include "engine/adapters/adapter_directory.h"
#include "engine/adapters/merge.h"
#include "engine/batch.h"
#include "engine/run.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "parity/objective_parity.h"
#include "support/source_dir.h"
#include "support/test_device.h"

namespace snug {
namespace score_parity_test {

namespace fs = std::filesystem;

using recipe::ObjectiveName;
using tests::expect_close;
using tests::ParityBase;
using tests::ParityRows;
using tests::read;

constexpr int64_t kDocuments = 8;
constexpr int32_t kPad = 0;  // the token that fills batches up there
constexpr double kTolerance = 1e-5;

fs::path data_folder() { return tests::source_dir() / "tests/data"; }

const ParityBase kBases[] = {{"llama", false, 2e-3},    {"gpt2", false, 2e-3},
                             {"gpt-neox", false, 2e-3}, {"opt", false, 2e-3},
                             {"qwen3", true, 1e-2},     {"gemma2", true, 1e-2}};

struct Case {
  const char* name;
  recipe::ObjectiveOptions options;
  int64_t documents_per_sample = 1;
};

const Case kCases[] = {
    {"classification", {.name = ObjectiveName::Classification}},
    {"reward", {.name = ObjectiveName::Reward, .center_rewards_coefficient = 0.05}, 2}};

enum class Form { Packed, Padded };

// The documents, with what an objective reads beside them.
data::SampleStore documents(const files::TensorSource& expected, int64_t per_sample) {
  const at::Tensor ids = read(expected, "input_ids");
  const at::Tensor numbers = read(expected, per_sample == 1 ? "labels" : "margins");
  data::SampleStore store;
  std::vector<int64_t> rows;
  std::unordered_map<int64_t, double> values;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    data::Sample sample{.ids = ParityRows::tokens_of(ids, row)};
    sample.labels.assign(sample.ids.size(), -100);
    store.append(sample);
  }
  for (int64_t row = 0; row < numbers.size(0); ++row) {
    rows.push_back(row);
    values[row] = numbers[row].item<double>();
  }
  store.group(per_sample);
  data::add_score_columns(store, rows, values, kPad);
  return store;
}

std::vector<std::string> labels_of(const at::Tensor& score) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < score.size(0); ++i) labels.push_back(fmt::format("LABEL_{}", i));
  return labels;
}

class ScoreParity : public ::testing::TestWithParam<std::tuple<ParityBase, Case, Form>> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }

  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
    expected_ = files::open_safetensors(data_folder() / "parity/score_heads.safetensors");
    checkpoint_ = models::open_checkpoint(data_folder() / "parity" / base_.name);
    models::score_documents(checkpoint_, labels_of(expected("score")), kPad);
    samples_ = documents(*expected_, case_.documents_per_sample);
    recipe_ = tests::parity_recipe(base_, case_.options, samples_.count());
    batches_ = std::make_unique<data::TokenBatchSource>(
        samples_, data::MicroBatchOptions{.packing = std::get<2>(GetParam()) == Form::Packed,
                                          .reading = checkpoint_.model->reads()});
    start();
  }

  void start() {
    run_ = std::make_unique<engine::Run>(
        *checkpoint_.model, recipe_, *batches_,
        engine::RunOptions{.device = tests::test_device(), .longest = 128});
    tests::load_start(checkpoint_, *expected_, base_);
    for (nn::Parameter* parameter : checkpoint_.model->parameters())
      if (parameter->name == "score.weight") parameter->kept().detach().copy_(expected("score"));
    run_->engine().weights_changed();
  }

  at::Tensor expected(const std::string& what) const {
    return read(*expected_, fmt::format("{}.{}.{}", base_.name, case_.name, what));
  }

  // transformers' figure is the accuracy; TRL's are the mean of all rewards, the accuracy of pairs
  // and their mean distance.
  void expect_values(const std::string& where, const engine::StepResult& result,
                     const at::Tensor& expected) const {
    const std::vector<double>& own = result.figures;
    const std::vector<double> found =
        case_.documents_per_sample == 1
            ? std::vector{result.loss, own[0]}
            : std::vector{result.loss, (own[0] + own[1]) / 2, own[2], own[3]};
    ASSERT_EQ(std::ssize(found), expected.numel());
    for (size_t i = 0; i < found.size(); ++i) {
      const double wanted = expected[static_cast<int64_t>(i)].item<double>();
      EXPECT_NEAR(found[i], wanted, kTolerance * std::max(1.0, std::abs(wanted)))
          << where << "figure " << i;
    }
  }

  const ParityBase base_ = std::get<0>(GetParam());
  const Case case_ = std::get<1>(GetParam());
  recipe::Recipe recipe_;
  models::Checkpoint checkpoint_;
  std::unique_ptr<files::TensorSource> expected_;
  data::SampleStore samples_;
  std::unique_ptr<data::TokenBatchSource> batches_;
  std::unique_ptr<engine::Run> run_;
};

TEST_P(ScoreParity, ScoresAndGradients) {
  const engine::Engine& engine = run_->engine();
  const int64_t labels = expected("score").size(0);
  const std::vector<double> scores = engine::scores_of_documents(
      *engine.executor, *batches_, samples_.count(), labels, {.micro_batch_size = 3});
  expect_close("scores", at::tensor(scores).to(at::kFloat).view({kDocuments, labels}),
               expected("scores"), kTolerance);
  std::vector<int64_t> all(static_cast<size_t>(samples_.count()));
  std::iota(all.begin(), all.end(), 0);
  const auto terms = static_cast<double>(samples_.count());
  const double sum = engine.executor->forward_backward(
      engine::to_device(*batches_->make(all), tests::test_device()),
      {.gradient_scale = 1 / terms, .objective = engine.objective.get()});
  const double loss = expected("first")[0].item<double>();
  EXPECT_NEAR(sum / terms, loss, kTolerance * loss);
  const std::string prefix = fmt::format("{}.{}.grad.", base_.name, case_.name);
  const size_t compared = tests::expect_gradients(engine, *expected_, prefix, kTolerance);
  EXPECT_GT(compared, 1U);
}

TEST_P(ScoreParity, LossAndAdamWSteps) {
  engine::SampleIndices whole;
  for (int64_t i = 0; i < samples_.count(); i += 2) whole.push_back({i, i + 1});
  expect_values("", run_->step(whole, /*lr=*/0), expected("first"));
  start();
  const at::Tensor steps = expected("steps");
  const int64_t half = samples_.count() / 2;
  for (int64_t step = 0; step < steps.size(0); ++step) {
    engine::SampleIndices micro_batches;
    for (int64_t i = step % 2 * half; i < (step % 2 + 1) * half; i += half / 2) {
      micro_batches.emplace_back(static_cast<size_t>(half / 2));
      std::iota(micro_batches.back().begin(), micro_batches.back().end(), i);
    }
    expect_values(fmt::format("step {}: ", step), run_->step(micro_batches, base_.lr), steps[step]);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ScoreParity,
                         ::testing::Combine(::testing::ValuesIn(kBases),
                                            ::testing::ValuesIn(kCases),
                                            ::testing::Values(Form::Packed, Form::Padded)),
                         [](const auto& info) {
                           std::string name = fmt::format(
                               "{}_{}_{}", std::get<0>(info.param).name,
                               std::get<1>(info.param).name,
                               std::get<2>(info.param) == Form::Packed ? "packed" : "padded");
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

class ScoreFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    tests::prepare_test_device();
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  }

  void expect_scores(models::Model& model, const char* wanted,
                     const std::function<void(nn::Parameter&)>& fill) {
    const data::SampleStore samples = documents(*expected_, 1);
    data::TokenBatchSource batches(samples, {.reading = model.reads()});
    for (nn::Parameter* parameter : model.parameters()) {
      parameter->trained = false;
      parameter->allocate(tests::test_device(), at::kFloat);
      if (fill) fill(*parameter);
    }
    model.prepare(tests::test_device(), 128);
    exec::Executor executor(model.units(), {}, memory::ledger_of(tests::test_device().type()));
    const std::vector<double> scores =
        engine::scores_of_documents(executor, batches, kDocuments, 3, {.micro_batch_size = 4});
    expect_close("scores", at::tensor(scores).to(at::kFloat).view({kDocuments, 3}),
                 read(*expected_, wanted), kTolerance);
  }

  const std::unique_ptr<files::TensorSource> expected_ =
      files::open_safetensors(data_folder() / "parity/score_heads.safetensors");
};

TEST_F(ScoreFolders, OfTransformersAreRead) {
  models::Checkpoint checkpoint = models::open_checkpoint(data_folder() / "classes/model");
  EXPECT_EQ(checkpoint.model->labels(), (std::vector<std::string>{"low", "middle", "high"}));
  EXPECT_EQ(checkpoint.model->reads().pad_token, kPad);
  // What it says is what it was read from.
  EXPECT_EQ(models::model_like(*checkpoint.model)->labels(), checkpoint.model->labels());
  EXPECT_EQ(checkpoint.model->hugging_face_config()["architectures"][0],
            "LlamaForSequenceClassification");
  models::expect_weights(checkpoint, checkpoint.model->parameters());
  expect_scores(*checkpoint.model, "classes.model", [&](nn::Parameter& parameter) {
    parameter.write(models::read_parameter(checkpoint, parameter, at::kFloat));
  });
}

TEST_F(ScoreFolders, OfPeftAreMerged) {
  const fs::path folder = data_folder() / "classes/adapter";
  models::Checkpoint base = models::open_checkpoint(data_folder() / "parity/qwen3");
  models::score_documents(base, {"low", "middle", "high"}, kPad);
  const checkpoint::Adapter adapter = engine::read_adapter(folder, *base.model);
  EXPECT_EQ(adapter.config.task_type, checkpoint::kScoresDocuments);
  const auto merged = engine::merged_reader(base, adapter, at::kFloat);
  expect_scores(*base.model, "classes.adapter",
                [&](nn::Parameter& parameter) { parameter.write(merged(parameter)); });
}

TEST_F(ScoreFolders, AHeadThatIsMissingIsToldFromOneThatIsDrawn) {
  models::Checkpoint base = models::open_checkpoint(data_folder() / "parity/qwen3");
  models::score_documents(base, {"no", "yes"}, kPad);
  for (const nn::Parameter* parameter : base.model->parameters())
    EXPECT_EQ(base.draws(*parameter), parameter->name == "score.weight") << parameter->name;
  models::Checkpoint whole = models::open_checkpoint(data_folder() / "classes/model");
  EXPECT_THROW(models::score_documents(whole, {"no", "yes"}, kPad), UserError);
  models::score_documents(whole, {"low", "middle", "high"}, kPad);
  for (const nn::Parameter* parameter : whole.model->parameters())
    EXPECT_FALSE(whole.draws(*parameter)) << parameter->name;
}

}  // namespace score_parity_test
}  // namespace snug
