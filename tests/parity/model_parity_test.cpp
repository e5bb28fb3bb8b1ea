// Our model families against transformers' (tests/oracles/llama_parity.py and model_parity.py wrote
// the expected values): logits, loss, every gradient by name, AdamW steps, the most probable tokens
// one by one; and the same files written again.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "core/memory/ledger.h"
#include "core/nn/kv_cache.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/export/export.h"
#include "files/weights/safetensors/safetensors.h"
#include "models/family.h"
#include "parity/parity_support.h"
#include "support/source_dir.h"
#include "support/temp_folder.h"
#include "support/test_device.h"
#include "text/tokenizer/tokenizer.h"

namespace snug {
namespace model_parity_test {

namespace fs = std::filesystem;
using nlohmann::json;

using tests::expect_close;
using tests::ParityRows;
using tests::read;

constexpr int64_t kRowsPerBatch = 2;

// float32 sums of a few hundred terms in another order, through two blocks.
constexpr double kTolerance = 1e-5;

recipe::Recipe recipe() {
  recipe::Recipe r;
  r.precision = "32-true";
  r.optimizer = {.name = "adamw", .lr = 1e-2, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95};
  return r;
}

// Compares two configs, and the configs within them.
void expect_same_where_both_say(const json& ours, const json& theirs) {
  // Which T5 has a head of its own, transformers 4 reads here, and 5 does not write.
  const std::set<std::string> said_otherwise = {"tie_word_embeddings", "rope_theta", "use_cache",
                                                "bos_token_id"};
  for (const auto& [key, value] : ours.items()) {
    if (!theirs.contains(key) || theirs[key].is_null() || said_otherwise.contains(key)) continue;
    if (value.is_null() && theirs[key] == 0) continue;  // both say that there is no window
    if (value.is_object() && theirs[key].is_object())
      expect_same_where_both_say(value, theirs[key]);
    else
      EXPECT_EQ(value, theirs[key]) << key;
  }
}

// Those that a model does not know are the tokenizer's.
json without_special_tokens(const models::Model& model) {
  json config = model.hugging_face_config();
  config.erase("bos_token_id");
  config.erase("eos_token_id");
  return config;
}

// The same bias in all keys shifts a query's scores alike, which softmax does not notice: without
// rotation its gradient is zero, and what both sides have is rounding.
double gradient_tolerance(const std::string& name, const at::Tensor& expected) {
  const bool of_keys = name.ends_with("k_proj.bias") || name.ends_with(".key.bias");
  const bool is_zero = of_keys && expected.abs().max().item<double>() < 1e-6;
  return is_zero ? 5 * kTolerance : kTolerance;
}

class ModelParity : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }

  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
    const fs::path data = tests::source_dir() / "tests/data", name = GetParam();
    const bool is_part = name.has_parent_path();
    folder_ = is_part ? data / name : data / "parity" / name;
    checkpoint_ = models::open_checkpoint(folder_);
    expected_ = files::open_safetensors(folder_ / "expected.safetensors");
    rows_ = std::make_unique<ParityRows>(*expected_, checkpoint_.model->reads());
    recipe::Recipe r = recipe();
    if (expected_->find("adam_eps") != nullptr)
      r.optimizer.eps = read(*expected_, "adam_eps").item<double>();
    engine_ = engine::make_engine(*checkpoint_.model, r, tests::test_device(), 128);
    models::load_weights(checkpoint_);
  }

  double forward_backward(int64_t begin, nn::RoutedTokens* routed = nullptr) {
    const data::MicroBatch batch = rows_->batch(begin, kRowsPerBatch);
    const auto tokens = static_cast<double>(batch.loss_tokens);
    return engine_->executor->forward_backward(engine::to_device(batch, tests::test_device()),
                                               {.gradient_scale = 1.0 / tokens,
                                                .objective = engine_->objective.get(),
                                                .routed = routed}) /
           tokens;
  }

  // (N, V). The last unit, which returns the logits of documents' last tokens, is told that each
  // token is a document.
  at::Tensor logits_of_all(const data::MicroBatch& rows) {
    const at::NoGradGuard no_gradients;
    const nn::Pass pass{.output = nn::Output::LastLogits};
    nn::Batch batch = engine::to_device(rows, tests::test_device());
    nn::State state;
    for (nn::Unit* unit : engine_->units) {
      if (unit == engine_->units.back())
        batch.cu_seqlens = at::arange(std::ssize(rows.input_ids) + 1, batch.cu_seqlens.options());
      state = unit->forward(state, batch, pass);
    }
    return state.at("logits");
  }

  // `count` tokens after the prompt; with a cache each pass but the first reads one token.
  std::vector<int32_t> most_probable(int64_t row, const std::vector<int32_t>& prompt, int64_t count,
                                     bool with_cache) {
    nn::KvCache cache(std::ssize(prompt) + count);
    std::vector<int32_t> all = prompt, found;
    for (int64_t i = 0; i < count; ++i) {
      const bool goes_on = with_cache && i > 0;
      const data::MicroBatch part =
          goes_on ? rows_->part(row, {all.back()}, std::ssize(all) - 1) : rows_->part(row, all, 0);
      nn::Batch batch = engine::to_device(part, tests::test_device());
      if (with_cache) batch.cache = &cache;
      const at::Tensor logits = engine_->executor->last_logits(batch, at::kFloat);
      found.push_back(static_cast<int32_t>(logits[0].argmax().item<int64_t>()));
      all.push_back(found.back());
    }
    return found;
  }

  fs::path folder_;
  models::Checkpoint checkpoint_;
  std::unique_ptr<files::TensorSource> expected_;
  std::unique_ptr<ParityRows> rows_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_P(ModelParity, LastLogits) {
  const data::MicroBatch batch = rows_->batch(0, kRowsPerBatch);
  const at::Tensor logits =
      engine_->executor->last_logits(engine::to_device(batch, tests::test_device()), at::kFloat);
  const at::Tensor expected = read(*expected_, "logits");
  for (int64_t row = 0; row < kRowsPerBatch; ++row)
    expect_close("logits of row " + std::to_string(row), logits[row],
                 expected[row][batch.cu_seqlens[row + 1] - batch.cu_seqlens[row] - 1], kTolerance);
}

// Each token's within the tolerance of the largest among its own.
TEST_P(ModelParity, LogitsOfEveryToken) {
  const data::MicroBatch batch = rows_->batch(0, kRowsPerBatch);
  const at::Tensor logits = logits_of_all(batch), expected = read(*expected_, "logits");
  ASSERT_EQ(logits.size(0), std::ssize(batch.input_ids));
  for (int64_t row = 0; row < kRowsPerBatch; ++row)
    for (int64_t i = batch.cu_seqlens[row]; i < batch.cu_seqlens[row + 1]; ++i) {
      const int64_t position = i - batch.cu_seqlens[row];
      expect_close(fmt::format("logits of row {}, token {}", row, position), logits[i],
                   expected[row][position], kTolerance);
    }
}

TEST_P(ModelParity, LossAndEveryGradient) {
  const double loss = forward_backward(0);
  EXPECT_NEAR(loss, read(*expected_, "loss").item<double>(), 1e-5 * loss);
  for (const auto& [name, tensor] : engine_->parameters) {
    const at::Tensor expected = read(*expected_, "grad." + name);
    expect_close("gradient of " + name, tensor.grad(), expected,
                 gradient_tolerance(name, expected));
  }
  int64_t gradients = 0;
  for (const files::TensorInfo& tensor : expected_->tensors())
    gradients += tensor.name.starts_with("grad.");
  EXPECT_EQ(std::ssize(engine_->parameters), gradients);
}

TEST_P(ModelParity, RecomputingGivesTheSameGradients) {
  forward_backward(0);
  std::vector<at::Tensor> plain;
  for (const auto& [name, tensor] : engine_->parameters) plain.push_back(tensor.grad().clone());
  recipe::Recipe r = recipe();
  r.activation_checkpointing = "all";
  engine_ = engine::make_engine(*checkpoint_.model, r, tests::test_device(), 128);
  models::load_weights(checkpoint_);
  forward_backward(0);
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(at::equal(engine_->parameters[i].tensor.grad(), plain[i]))
        << engine_->parameters[i].name;
}

TEST_P(ModelParity, AdamWSteps) {
  const at::Tensor losses = read(*expected_, "losses");
  const bool clamps = std::string_view(GetParam()).starts_with("gpt-oss");
  for (int64_t step = 0; step < losses.numel(); ++step) {
    const double loss = forward_backward(step * kRowsPerBatch % rows_->count());
    const double expected = losses[step].item<double>();
    // Differences of rounding grow from step to step at this learning rate; where gates are
    // clamped, a rounding decides sooner or later whether one at the limit has a gradient.
    const double rounding = clamps && step >= 10 ? 5e-4 : 1e-5;
    EXPECT_NEAR(loss, expected, rounding * expected * static_cast<double>(1 + step))
        << "step " << step;
    engine_->optimizer->step({.lr = 1e-2});
    engine_->drop_gradients();
  }
  for (const auto& [name, tensor] : engine_->parameters)
    if (expected_->find("final." + name) != nullptr)
      expect_close("final " + name, tensor.detach(), read(*expected_, "final." + name),
                   clamps ? 2e-2 : 1e-3);
}

TEST_P(ModelParity, TokensOneByOne) {
  const bool has_expected = expected_->find("greedy") != nullptr;
  const at::Tensor prompts =
      has_expected ? read(*expected_, "prompt_ids") : read(*expected_, "input_ids").slice(0, 0, 2);
  for (int64_t row = 0; row < prompts.size(0); ++row) {
    const std::vector<int32_t> prompt = ParityRows::tokens_of(prompts, row);
    const std::vector<int32_t> plain = most_probable(row, prompt, 10, /*with_cache=*/false);
    EXPECT_EQ(most_probable(row, prompt, 10, /*with_cache=*/true), plain) << "row " << row;
    if (has_expected) {
      EXPECT_EQ(plain, ParityRows::tokens_of(read(*expected_, "greedy"), row)) << "row " << row;
    }
  }
}

// What save_pretrained wrote comes out again: the same tensors, and a config that says the same.
TEST_P(ModelParity, ExportsWhatTransformersWrote) {
  const test::TempFolder folder;
  const auto tokenizer =
      tokenizer::Tokenizer::from_directory(tests::source_dir() / "tests/data/system/tiny");
  engine::export_hugging_face(folder / "out", *checkpoint_.model, tokenizer.get(),
                              engine::resident_value, {.dtype = at::kFloat});
  const auto written = files::open_safetensors(folder / "out/model.safetensors");
  const auto original = files::open_model_directory(folder_);  // other parts' tensors among them
  EXPECT_EQ(written->tensors().size(), original->tensors().size());
  for (const files::TensorInfo& tensor : original->tensors()) {
    ASSERT_NE(written->find(tensor.name), nullptr) << tensor.name;
    EXPECT_TRUE(at::equal(read(*written, tensor.name), read(*original, tensor.name)))
        << tensor.name;
  }
  const models::Checkpoint again = models::open_checkpoint(folder / "out");
  EXPECT_EQ(without_special_tokens(*again.model), without_special_tokens(*checkpoint_.model));
  const json theirs = json::parse(read_file(folder_ / "config.json"));
  expect_same_where_both_say(json::parse(read_file(folder / "out/config.json")), theirs);
}

class BalancedParity : public ModelParity {};

TEST_P(BalancedParity, TokensOfEachExpert) {
  nn::RoutedTokens routed;
  forward_backward(0, &routed);
  const at::Tensor expected = read(*expected_, "routed");
  ASSERT_EQ(std::ssize(routed), expected.size(0));
  int64_t row = 0;
  for (const auto& [block, counts] : routed)
    EXPECT_TRUE(at::equal(at::tensor(counts), expected[row++].to(at::kLong))) << "block " << block;
}

INSTANTIATE_TEST_SUITE_P(Cases, BalancedParity,
                         ::testing::Values("olmoe-balanced", "qwen3-moe-balanced",
                                           "mixtral-balanced", "gpt-oss-balanced"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class LongropeParity : public ModelParity {};

// transformers chooses the factors by the longest row of a batch; each row has its own here, as if
// it were alone.
TEST_P(LongropeParity, EachRowTurnsByItsOwnLength) {
  const at::Tensor brief = read(*expected_, "brief_logits");
  std::vector<int32_t> cut = ParityRows::tokens_of(read(*expected_, "input_ids"), 0);
  cut.resize(static_cast<size_t>(brief.size(0)));
  const std::vector<int32_t> whole = ParityRows::tokens_of(read(*expected_, "input_ids"), 1);
  const at::Tensor long_one = read(*expected_, "logits")[1][std::ssize(whole) - 1];
  const auto logits = [&](const std::vector<std::vector<int32_t>>& rows) {
    std::vector<data::Sample> samples;
    for (const auto& row : rows) samples.push_back({.ids = row, .labels = row});
    return engine_->executor->last_logits(
        engine::to_device(data::make_micro_batch(samples), tests::test_device()), at::kFloat);
  };
  expect_close("the short row alone", logits({cut})[0], brief[-1], kTolerance);
  const at::Tensor both = logits({cut, whole, cut});
  expect_close("the short row before a long one", both[0], brief[-1], kTolerance);
  expect_close("the long row", both[1], long_one, kTolerance);
  expect_close("the short row behind a long one", both[2], brief[-1], kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Cases, LongropeParity, ::testing::Values("llama-longrope"),
                         [](const auto&) { return "llama_longrope"; });

std::string name_of(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = fs::path(info.param).filename();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ModelParity,
    ::testing::Values("llama", "llama3-rope", "llama-bias", "llama-linear", "llama-longrope",
                      "mistral", "ministral", "ministral3", "qwen2", "qwen2-windows", "qwen3",
                      "granite", "granite-hybrid", "granite-hybrid-groups", "granite-hybrid-dense",
                      "granite-hybrid-moe", "granite-hybrid-balanced", "smollm3", "olmo2",
                      "olmo2-dynamic", "olmo3", "exaone4", "exaone4-full", "phi3", "phi3-longrope",
                      "phi3-factors", "gemma", "gemma2", "gemma3", "gemma4", "gemma4-shared",
                      "gemma4-unified", "gemma4-moe", "minimax-m2", "glm", "glm4", "ernie4-5",
                      "helium", "seed-oss", "lfm2", "lfm2-bias", "arcee", "qwen3-5",
                      "qwen3-5-untied", "qwen3-5-moe", "qwen3-next", "qwen2-moe", "lfm2-moe",
                      "deepseek-v2", "deepseek-v3", "deepseek-v3-halves", "glm4-moe",
                      "glm4-moe-plain", "glm4-moe-lite", "dots1", "gpt2", "gpt2-untied", "gpt-neox",
                      "gpt-neox-serial", "falcon", "falcon-grouped", "falcon-shared-norm",
                      "falcon-serial", "starcoder2", "stablelm", "olmoe", "qwen3-moe", "mixtral",
                      "gpt-oss", "olmoe-balanced", "qwen3-moe-balanced", "mixtral-balanced",
                      "gpt-oss-balanced", "opt", "opt-after", "opt-plain", "t5", "t5-gated",
                      "blip2-opt", "blip2-t5", "idefics3", "smolvlm"),
    name_of);

// tests/oracles/language_part.py wrote these.
INSTANTIATE_TEST_SUITE_P(LanguageParts, ModelParity,
                         ::testing::Values("language_part/gemma3", "language_part/gemma4",
                                           "language_part/internvl", "language_part/llava",
                                           "language_part/llava_onevision",
                                           "language_part/mistral3", "language_part/qwen2_vl",
                                           "language_part/qwen2_5_vl", "language_part/qwen3_vl",
                                           "language_part/qwen3_5", "language_part/qwen3_5_moe"),
                         name_of);

// A head that no longer shares the embedding's weight, in each way of naming the parts.
TEST(LanguagePart, ANewHeadHasTheNameThatTransformersReads) {
  const auto head = [](const char* norm) {
    return models::WholeModel{.places = {{"model.norm.weight", {.tensor = norm}}}}.name_of_new(
        "lm_head.weight");
  };
  EXPECT_EQ(head("model.language_model.norm.weight"), "lm_head.weight");
  EXPECT_EQ(head("language_model.model.norm.weight"), "language_model.lm_head.weight");
  EXPECT_EQ(head("model.norm.weight"), "lm_head.weight");
}

// Nothing trained is lost with the folder that training began with.
TEST(LanguagePart, IsWrittenAloneWhereOtherPartsAreGone) {
  if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
  const test::TempFolder folder;
  fs::copy(tests::source_dir() / "tests/data/language_part/llava", folder / "whole");
  models::Checkpoint checkpoint = models::open_checkpoint(folder / "whole");
  const auto engine =
      engine::make_engine(*checkpoint.model, recipe(), tests::test_device(), /*max_seqlen=*/128);
  models::load_weights(checkpoint);
  EXPECT_EQ(models::open_others(*checkpoint.model->whole())->tensors().size(),
            static_cast<size_t>(checkpoint.model->whole()->num_others));
  // Another model in its place is no better than none.
  fs::remove(folder / "whole/model.safetensors");
  fs::copy_file(tests::source_dir() / "tests/data/language_part/gemma3/model.safetensors",
                folder / "whole/model.safetensors");
  EXPECT_THROW(models::open_others(*checkpoint.model->whole()), UserError);
  fs::remove(folder / "whole/model.safetensors");
  engine::export_hugging_face(folder / "out", *checkpoint.model, /*tokenizer=*/nullptr,
                              engine::resident_value, {.dtype = at::kFloat});
  const models::Checkpoint alone = models::open_checkpoint(folder / "out");
  EXPECT_EQ(alone.model->whole(), nullptr);
  EXPECT_EQ(alone.model->hugging_face_config()["model_type"], "llama");
  EXPECT_EQ(alone.model->num_parameters(), checkpoint.model->num_parameters());
}

}  // namespace model_parity_test
}  // namespace snug
