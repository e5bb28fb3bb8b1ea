// Our Llama family against transformers' (tests/oracles/llama_parity.py wrote the expected values):
// logits, loss, every gradient by name, and twenty AdamW steps.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "formats/safetensors.h"
#include "memory/ledger.h"
#include "models/family.h"
#include "parity/parity_support.h"
#include "setup/batch.h"
#include "setup/engine.h"
#include "support/test_device.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

using tests::expect_close;
using tests::read;
using tests::rows_as_batch;

constexpr int64_t kRowsPerBatch = 2;

// float32 sums of a few hundred terms in another order, through two blocks.
constexpr double kTolerance = 2e-5;

config::Recipe recipe() {
  config::Recipe r;
  r.precision = "32-true";
  r.optimizer = {.name = "adamw", .lr = 1e-2, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95};
  return r;
}

class LlamaParity : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }

  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
    const fs::path folder = fs::path(SNUG_SOURCE_DIR) / "tests/data/parity" / GetParam();
    checkpoint_.model = models::model_from_config(folder / "config.json");
    checkpoint_.path = folder;
    checkpoint_.tensors = formats::open_safetensors(folder / "model.safetensors");
    expected_ = formats::open_safetensors(folder / "expected.safetensors");
    engine_ = setup::make_engine(*checkpoint_.model, recipe(), tests::test_device(), 128);
    models::load_weights(checkpoint_);
    ids_ = read(*expected_, "input_ids");
    labels_ = read(*expected_, "labels");
  }

  double forward_backward(int64_t begin) {
    const data::MicroBatch batch = rows_as_batch(ids_, labels_, begin, kRowsPerBatch);
    const auto tokens = static_cast<double>(batch.loss_tokens);
    return engine_.executor->forward_backward(setup::to_device(batch, tests::test_device()),
                                              {.gradient_scale = 1.0 / tokens}) /
           tokens;
  }

  models::Checkpoint checkpoint_;
  std::unique_ptr<formats::TensorSource> expected_;
  setup::Engine engine_;
  at::Tensor ids_, labels_;
};

TEST_P(LlamaParity, LastLogits) {
  const data::MicroBatch batch = rows_as_batch(ids_, labels_, 0, kRowsPerBatch);
  const at::Tensor logits =
      engine_.executor->last_logits(setup::to_device(batch, tests::test_device()), at::kFloat);
  expect_close("logits", logits, read(*expected_, "logits").select(1, ids_.size(1) - 1),
               kTolerance);
}

TEST_P(LlamaParity, LossAndEveryGradient) {
  const double loss = forward_backward(0);
  EXPECT_NEAR(loss, read(*expected_, "loss").item<double>(), 1e-5 * loss);
  for (const auto& [name, tensor] : engine_.parameters)
    expect_close("gradient of " + name, tensor.grad(), read(*expected_, "grad." + name),
                 kTolerance);
}

TEST_P(LlamaParity, RecomputingGivesTheSameGradients) {
  forward_backward(0);
  std::vector<at::Tensor> plain;
  for (const auto& [name, tensor] : engine_.parameters) plain.push_back(tensor.grad().clone());
  config::Recipe r = recipe();
  r.activation_checkpointing = "all";
  engine_ = setup::make_engine(*checkpoint_.model, r, tests::test_device(), 128);
  models::load_weights(checkpoint_);
  forward_backward(0);
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(at::equal(engine_.parameters[i].tensor.grad(), plain[i]))
        << engine_.parameters[i].name;
}

TEST_P(LlamaParity, TwentySteps) {
  const at::Tensor losses = read(*expected_, "losses");
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const double loss = forward_backward(step * kRowsPerBatch % ids_.size(0));
    const double expected = losses[step].item<double>();
    // Differences of rounding grow from step to step at this learning rate.
    EXPECT_NEAR(loss, expected, 1e-5 * expected * static_cast<double>(1 + step)) << "step " << step;
    engine_.optimizer->step({.lr = 1e-2});
    engine_.drop_gradients();
  }
  for (const auto& [name, tensor] : engine_.parameters)
    if (expected_->find("final." + name) != nullptr)
      expect_close("final " + name, tensor.detach(), read(*expected_, "final." + name), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Cases, LlamaParity,
                         ::testing::Values("llama", "llama3-rope", "llama-bias", "llama-linear",
                                           "mistral", "qwen2"));

}  // namespace
}  // namespace snug
