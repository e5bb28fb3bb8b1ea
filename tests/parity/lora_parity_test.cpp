// Low-rank adapters against peft's (tests/oracles/lora_parity.py wrote the expected values):
// logits, loss, every adapter gradient by name, and twenty AdamW steps.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/adapters/adapters.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "parity/parity_support.h"
#include "support/source_dir.h"
#include "support/test_device.h"

namespace snug {
namespace {

namespace fs = std::filesystem;

using tests::expect_close;
using tests::read;
using tests::rows_as_batch;

constexpr int64_t kRowsPerBatch = 2;
constexpr double kTolerance = 1e-5;  // as for the models themselves

struct Case {
  const char* name;
  const char* model;
  recipe::LoraOptions options;
  const char* quantize = "";
};

const char* const kLinear = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj";

const Case kCases[] = {
    {"qv", "llama", {.r = 4, .alpha = 8}},
    {"all",
     "llama-bias",
     {.r = 3, .alpha = 6, .key = true, .projection = true, .mlp = true, .head = true}},
    {"mlp-rslora",
     "mistral",
     {.r = 4, .alpha = 2, .query = false, .value = false, .mlp = true, .use_rslora = true}},
    {"dora", "qwen2", {.r = 4, .alpha = 8, .target_modules = kLinear, .use_dora = true}},
    {"second-block",
     "llama3-rope",
     {.r = 2, .alpha = 4, .target_modules = R"(.*layers\.1\.self_attn\.(q|o)_proj)"}},
    {"plus", "llama", {.r = 4, .alpha = 8, .plus_lr_ratio = 16}},
    {"nf4", "llama", {.r = 4, .alpha = 8, .target_modules = "all-linear"}, "bnb.nf4"},
    {"nf4-dq-dora",
     "qwen2",
     {.r = 4, .alpha = 8, .target_modules = "all-linear", .use_dora = true},
     "bnb.nf4-dq"},
    {"fp4", "mistral", {.r = 4, .alpha = 8}, "bnb.fp4"},
    {"transposed", "gpt2", {.r = 4, .alpha = 8, .projection = true, .mlp = true}},
    {"transposed-dora",
     "gpt2-untied",
     {.r = 4, .alpha = 8, .target_modules = "c_attn,c_proj", .use_dora = true}},
    {"fused", "phi3", {.r = 4, .alpha = 8, .projection = true, .mlp = true}},
    {"interleaved-dora",
     "gpt-neox",
     {.r = 4, .alpha = 8, .projection = true, .mlp = true, .use_dora = true}},
    {"nf4-interleaved",
     "gpt-neox",
     {.r = 4, .alpha = 8, .target_modules = "all-linear"},
     "bnb.nf4"},
    {"shared-key", "falcon", {.r = 4, .alpha = 8, .projection = true, .mlp = true}},
    {"nf4-shared-key-dora",
     "falcon",
     {.r = 4, .alpha = 8, .projection = true, .mlp = true, .use_dora = true},
     "bnb.nf4"},
    {"grouped-dora",
     "falcon-grouped",
     {.r = 4, .alpha = 8, .projection = true, .mlp = true, .use_dora = true}},
    {"nf4-grouped",
     "falcon-grouped",
     {.r = 4, .alpha = 8, .target_modules = "all-linear"},
     "bnb.nf4"},
    {"int8-shared-norm",
     "falcon-shared-norm",
     {.r = 4, .alpha = 8, .target_modules = "all-linear"},
     "bnb.int8"},
    {"partly-rotated", "stablelm", {.r = 4, .alpha = 8, .target_modules = kLinear}},
    {"nf4-partly-rotated", "stablelm", {.r = 4, .alpha = 8, .target_modules = kLinear}, "bnb.nf4"},
    {"nf4-no-rotary", "smollm3", {.r = 4, .alpha = 8, .target_modules = kLinear}, "bnb.nf4"},
    {"nf4-no-gate",
     "starcoder2",
     {.r = 4, .alpha = 8, .key = true, .projection = true, .mlp = true},
     "bnb.nf4"},
    {"int8-no-gate-dora",
     "starcoder2",
     {.r = 4, .alpha = 8, .key = true, .projection = true, .mlp = true, .use_dora = true},
     "bnb.int8"},
    {"nf4-yarn-windows", "olmo3", {.r = 4, .alpha = 8, .target_modules = kLinear}, "bnb.nf4"},
    {"int8-yarn-windows", "olmo3", {.r = 4, .alpha = 8, .target_modules = kLinear}, "bnb.int8"},
    {"nf4-rotary-windows", "exaone4", {.r = 4, .alpha = 8, .target_modules = kLinear}, "bnb.nf4"},
    {"int8-rotary-windows-dora",
     "exaone4",
     {.r = 4, .alpha = 8, .target_modules = kLinear, .use_dora = true},
     "bnb.int8"},
    {"nf4-scaled-queries",
     "ministral3",
     {.r = 4, .alpha = 8, .target_modules = kLinear},
     "bnb.nf4"},
    {"int8-scaled-queries",
     "ministral3",
     {.r = 4, .alpha = 8, .target_modules = kLinear},
     "bnb.int8"},
    {"nf4-fused", "phi3", {.r = 4, .alpha = 8, .projection = true, .mlp = true}, "bnb.nf4"},
    {"multipliers", "granite", {.r = 4, .alpha = 8, .target_modules = kLinear}},
    {"norms-after-dora",
     "olmo2",
     {.r = 4, .alpha = 8, .target_modules = kLinear, .use_dora = true}},
    {"nf4-gemma3", "gemma3", {.r = 4, .alpha = 8, .target_modules = kLinear}, "bnb.nf4"},
    {"relu", "opt", {.r = 4, .alpha = 8, .projection = true, .mlp = true}},
    {"int8-gemma", "gemma2", {.r = 4, .alpha = 8, .target_modules = kLinear}, "bnb.int8"},
    {"nf4-qwen3", "qwen3", {.r = 4, .alpha = 8, .target_modules = kLinear}, "bnb.nf4"},
    {"experts", "qwen3-moe", {.r = 3, .alpha = 6, .key = true, .projection = true, .mlp = true}},
    {"nf4-experts", "olmoe", {.r = 3, .alpha = 6, .target_modules = kLinear}, "bnb.nf4"},
    {"nf4-experts-dora", "mixtral", {.r = 3, .alpha = 6, .mlp = true, .use_dora = true}, "bnb.nf4"},
    {"stacked-experts",
     "gpt-oss",
     {.r = 3, .alpha = 6, .key = true, .projection = true, .mlp = true}},
    {"nf4-stacked-experts",
     "gpt-oss",
     {.r = 2, .alpha = 6, .target_modules = "q_proj,v_proj,down_proj"},
     "bnb.nf4"},
    {"int8",
     "llama-bias",
     {.r = 4, .alpha = 8, .key = true, .projection = true, .mlp = true, .head = true},
     "bnb.int8"},
};

class LoraParity : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }

  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
    const fs::path folder = tests::source_dir() / "tests/data/parity" / GetParam().model;
    checkpoint_.model = models::model_from_config(folder / "config.json");
    checkpoint_.path = folder;
    checkpoint_.tensors = files::open_safetensors(folder / "model.safetensors");
    expected_ =
        files::open_safetensors(folder / fmt::format("lora-{}.safetensors", GetParam().name));
    ids_ = read(*expected_, "input_ids");
    labels_ = read(*expected_, "labels");
    recipe_.precision = "32-true";
    recipe_.lora = GetParam().options;
    recipe_.quantize = GetParam().quantize;
    recipe_.lora.enabled = true;
    recipe_.lora.dropout = 0;
    recipe_.optimizer = {
        .name = "adamw", .lr = 1e-2, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95};
    if (recipe_.lora.plus_lr_ratio != 1) recipe_.optimizer.weight_decay = 0;  // as peft sets it
    start();
  }

  void start() {
    engine_ = engine::make_engine(*checkpoint_.model, recipe_, tests::test_device(), 128);
    models::load_weights(checkpoint_);
    for (nn::Parameter* parameter : checkpoint_.model->parameters())
      if (parameter->trained)
        parameter->kept().detach().copy_(read(*expected_, "start." + parameter->name));
    engine_->weights_changed();
  }

  double forward_backward(int64_t begin) {
    const data::MicroBatch batch = rows_as_batch(ids_, labels_, begin, kRowsPerBatch);
    const auto tokens = static_cast<double>(batch.loss_tokens);
    return engine_->executor->forward_backward(engine::to_device(batch, tests::test_device()),
                                               {.gradient_scale = 1.0 / tokens}) /
           tokens;
  }

  recipe::Recipe recipe_;
  models::Checkpoint checkpoint_;
  std::unique_ptr<files::TensorSource> expected_;
  std::unique_ptr<engine::Engine> engine_;
  at::Tensor ids_, labels_;
};

TEST_P(LoraParity, LastLogits) {
  const data::MicroBatch batch = rows_as_batch(ids_, labels_, 0, kRowsPerBatch);
  const at::Tensor logits =
      engine_->executor->last_logits(engine::to_device(batch, tests::test_device()), at::kFloat);
  expect_close("logits", logits, read(*expected_, "logits").select(1, ids_.size(1) - 1),
               kTolerance);
}

TEST_P(LoraParity, LossAndEveryGradient) {
  const double loss = forward_backward(0);
  EXPECT_NEAR(loss, read(*expected_, "loss").item<double>(), 1e-5 * loss);
  size_t gradients = 0;
  for (const files::TensorInfo& tensor : expected_->tensors())
    gradients += tensor.name.starts_with("grad.");
  EXPECT_EQ(engine_->parameters.size(), gradients);
  for (const auto& [name, tensor] : engine_->parameters)
    expect_close("gradient of " + name, tensor.grad(), read(*expected_, "grad." + name),
                 kTolerance);
}

TEST_P(LoraParity, TheBaseGetsNoGradient) {
  forward_backward(0);
  for (const nn::Parameter* parameter : checkpoint_.model->parameters())
    EXPECT_EQ(parameter->value.grad().defined(), parameter->trained) << parameter->name;
}

TEST_P(LoraParity, RecomputingGivesTheSameGradients) {
  forward_backward(0);
  std::vector<at::Tensor> plain;
  for (const auto& [name, tensor] : engine_->parameters) plain.push_back(tensor.grad().clone());
  recipe_.activation_checkpointing = "all";
  start();
  forward_backward(0);
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(at::equal(engine_->parameters[i].tensor.grad(), plain[i]))
        << engine_->parameters[i].name;
}

TEST_P(LoraParity, AdamWSteps) {
  const at::Tensor losses = read(*expected_, "losses");
  const double lr = recipe_.lora.plus_lr_ratio == 1 ? 1e-2 : 1e-3;
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const double loss = forward_backward(step * kRowsPerBatch % ids_.size(0));
    const double expected = losses[step].item<double>();
    // Differences of rounding grow from step to step at this learning rate.
    EXPECT_NEAR(loss, expected, 1e-5 * expected * static_cast<double>(1 + step)) << "step " << step;
    engine_->optimizer->step({.lr = lr});
    engine_->drop_gradients();
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LoraParity, ::testing::ValuesIn(kCases), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace snug
