// What a recipe takes in LitGPT, against litgpt's own model and torch's own optimizers counted by
// bench/compare/litgpt_memory.py, and against figures that people measured on GPUs and published.
// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/like.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "models/family.h"
#include "plan/rivals/optimizer.h"

namespace snug::plan::rivals {
namespace litgpt_like_test {

const std::filesystem::path kRoot = SNUG_SOURCE_DIR;

std::unique_ptr<models::Model> model(const std::string& name) {
  return models::model_from_config(kRoot / "recipes/models" / (name + ".json"));
}

recipe::Recipe recipe_of(const std::string& precision, const std::string& optimizer, int64_t batch,
                         int64_t accumulate) {
  recipe::Recipe recipe;
  recipe.precision = precision;
  recipe.optimizer.name = optimizer;
  recipe.optimizer.weight_decay = 0;
  recipe.train.micro_batch_size = batch;
  recipe.train.global_batch_size = batch * accumulate;
  return recipe;
}

Figures run(const std::string& name, const std::string& precision, const std::string& optimizer,
            int64_t accumulate, const Options& options) {
  return like_litgpt(*model(name), recipe_of(precision, optimizer, options.batch, accumulate),
                     options);
}

// A line of litgpt_memory.py as a recipe.
recipe::Recipe recipe_of(const nlohmann::json& line) {
  recipe::Recipe recipe = recipe_of(line.at("precision"), line.at("optimizer"), line.at("batch"),
                                    line.at("accumulate"));
  if (!line.contains("lora") || line.at("lora").is_null()) return recipe;
  const nlohmann::json& lora = line.at("lora");
  const auto has = [&](const char* target) {
    const auto& targets = lora.at("targets");
    return std::find(targets.begin(), targets.end(), target) != targets.end();
  };
  recipe.lora = {.enabled = true,
                 .r = lora.at("r"),
                 .dropout = lora.at("dropout"),
                 .query = has("query"),
                 .key = has("key"),
                 .value = has("value"),
                 .projection = has("projection"),
                 .mlp = has("mlp"),
                 .head = has("head")};
  if (!line.at("quantize").is_null()) recipe.quantize = line.at("quantize");
  return recipe;
}

class LitgptMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

TEST_F(LitgptMemory, IsThatOfItsOwnCode) {
  std::ifstream file(kRoot / "tests/data/plan/litgpt_memory.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const auto expected = nlohmann::json::parse(line);
    SCOPED_TRACE(line);
    const Figures like =
        like_litgpt(*model(expected.at("model")), recipe_of(expected),
                    {.loop = expected.at("order") == "lightning" ? Loop::Trainer : Loop::Fabric,
                     .fused_attention = expected.at("attention") == "flash",
                     .batch = expected.at("batch"),
                     .tokens = expected.at("tokens")});
    const auto share = [&](int64_t ours, const char* key) {
      return static_cast<double>(ours) / expected.at(key).get<double>();
    };
    EXPECT_NEAR(share(like.after_forward, "after_forward"), 1, 0.002);
    EXPECT_NEAR(share(like.prediction.peak_allocated, "peak"), 1, 0.01);
  }
  EXPECT_GE(cases, 20);
}

// OpenLLaMA 7B, AdamW, 4 samples of up to 512 tokens on an A100 80 GB, and TinyLlama, 8 samples, on
// a V100 32 GB: allocated and reserved, in GiB, printed right after a forward. The samples at hand
// may have been a little shorter than 512.
TEST_F(LitgptMemory, IsWithinATenthOfWhatWasPublished) {
  struct Row {
    const char* model;
    int64_t batch, accumulate;
    bool fused_attention;
    double allocated, reserved;
  };
  constexpr Row kRows[] = {{"open-llama-7b", 4, 1, true, 61.97, 71.35},
                           {"open-llama-7b", 4, 4, true, 61.99, 73.30},
                           {"tiny-llama", 8, 4, false, 23.92, 25.16}};
  for (const Row& row : kRows) {
    const Figures like = run(row.model, "bf16-true", "adamw", row.accumulate,
                             {.loop = Loop::Trainer,
                              .fused_attention = row.fused_attention,
                              .batch = row.batch,
                              .tokens = 512});
    const auto gib = [](int64_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(kGiB);
    };
    EXPECT_NEAR(gib(like.after_forward) / row.allocated, 1, 0.1) << row.model;
    EXPECT_NEAR(gib(like.prediction.peak_reserved) / row.reserved, 1, 0.1) << row.model;
  }
}

// The same on four of these GPUs in a Lightning Trainer, the rank that printed most: with DDP
// gradients and their buckets, with FSDP the whole model as one flat parameter.
TEST_F(LitgptMemory, OfFourGpusIsWithinATenthOfWhatWasPublished) {
  struct Row {
    const char* model;
    int64_t batch, accumulate;
    Sharding sharding;
    bool fused_attention;
    double allocated;
  };
  constexpr Row kRows[] = {{"open-llama-7b", 4, 1, Sharding::Ddp, true, 73.98},
                           {"open-llama-7b", 4, 1, Sharding::FsdpWhole, true, 36.33},
                           {"tiny-llama", 8, 4, Sharding::Ddp, false, 25.27},
                           {"tiny-llama", 8, 4, Sharding::FsdpWhole, false, 21.35}};
  for (const Row& row : kRows) {
    const Figures like = run(row.model, "bf16-true", "adamw", 4 * row.accumulate,
                             {.loop = Loop::Trainer,
                              .fused_attention = row.fused_attention,
                              .batch = row.batch,
                              .tokens = 512,
                              .sharding = row.sharding,
                              .ranks = 4});
    const double gib = static_cast<double>(like.after_forward) / static_cast<double>(kGiB);
    EXPECT_NEAR(gib / row.allocated, 1, 0.1) << row.model;
  }
}

// Weights W, states 2 W, gradients W and activations A on one GPU; after a forward of a later step
// 5 W + A with DDP's buckets, and with FSDP a part of 4 W, all weights gathered once more, and A.
TEST_F(LitgptMemory, OfManyGpusIsThatOfOneWithCopiesAndParts) {
  const auto after_forward = [](Sharding sharding, int64_t ranks) {
    const Figures like = run(
        "smollm2-135m", "bf16-true", "adamw", ranks,
        {.loop = Loop::Trainer, .batch = 2, .tokens = 64, .sharding = sharding, .ranks = ranks});
    return static_cast<double>(like.after_forward);
  };
  const double one = after_forward(Sharding::None, 1);
  // LitGPT trains embedding and head apart.
  const double weights = 2.0 * (134515008 + 49152 * 576);
  EXPECT_NEAR(after_forward(Sharding::Ddp, 4), one + weights, 1e-3 * one);
  for (const int64_t ranks : {2, 8})
    EXPECT_NEAR(after_forward(Sharding::FsdpWhole, ranks),
                one - 3 * weights + 4 * weights / static_cast<double>(ranks), 2e-3 * one)
        << ranks;
}

// litgpt finetune_full itself gathers blocks two at a time, and they keep only their inputs.
TEST_F(LitgptMemory, OfBlocksInPartsIsTwoBlocksAndTheRest) {
  const Options options{.batch = 2, .tokens = 64};
  Options blocks = options;
  blocks.sharding = Sharding::FsdpUnits;
  blocks.ranks = 8;
  const Figures one = run("smollm2-135m", "bf16-true", "adamw", 1, options);
  const Figures eight = run("smollm2-135m", "bf16-true", "adamw", 8, blocks);
  const double rest = 2.0 * (2 * 49152 + 1) * 576, block = 2.0 * (134515008 - 49153 * 576) / 30;
  double weights = 0;
  for (const Moment& moment : eight.prediction.timeline)
    weights = std::max(
        weights,
        static_cast<double>(moment.by_category[static_cast<size_t>(memory::Category::Parameters)]));
  const double expected = rest + 2 * block + (rest + 30 * block) / 8;
  EXPECT_NEAR(weights / expected, 1, 0.01);
  EXPECT_LT(eight.kept_by_blocks, one.kept_by_blocks / 5);
  EXPECT_LT(eight.prediction.peak_allocated, one.prediction.peak_allocated / 2);
}

// OpenLLaMA 13B on four A100 with 80 GB, micro-batches of 4 x 512: published as going through. A
// GPU keeps 2 / N bytes a parameter and the host 16 / N (DeepSpeed's guide to ZeRO-3's memory),
// besides gradients on the host as they come, another 2 / N.
TEST_F(LitgptMemory, OfDeepSpeedZero3IsWhatItsGuideSays) {
  Options options{.loop = Loop::Trainer,
                  .batch = 4,
                  .tokens = 512,
                  .reserved_limit = int64_t{79} * kGiB,
                  .sharding = Sharding::Zero3Offload,
                  .ranks = 4};
  const Figures like = run("open-llama-13b", "bf16-true", "adamw", 16, options);
  const double parameters = 13015864320.0;
  EXPECT_TRUE(like.prediction.fits_reserved) << format_bytes(like.prediction.peak_reserved);
  EXPECT_NEAR(static_cast<double>(like.prediction.peak_host), 18 * parameters / 4,
              1e-3 * parameters);
  // Whole weights are there once, when they are taken apart.
  const auto weights_in = [&](auto which) {
    int64_t most = 0;
    for (const Moment& moment : like.prediction.timeline)
      if (which(moment.phase))
        most =
            std::max(most, moment.by_category[static_cast<size_t>(memory::Category::Parameters)]);
    return static_cast<double>(most);
  };
  EXPECT_GE(weights_in([](memory::Phase p) { return p == memory::Phase::Setup; }), 2 * parameters);
  const double in_steps = weights_in([](memory::Phase p) { return p != memory::Phase::Setup; });
  EXPECT_GT(in_steps, 2 * parameters / 4);
  // stage3_max_live_parameters, which the last layer that is gathered may pass.
  const double most_live = 1e9 + 32000.0 * 5120;
  EXPECT_LT(in_steps, 2 * parameters / 4 + 2 * most_live);
  // Half the weights' parts on twice as many.
  options.ranks = 8;
  const Figures eight = run("open-llama-13b", "bf16-true", "adamw", 32, options);
  EXPECT_NEAR(static_cast<double>(eight.prediction.peak_host) /
                  static_cast<double>(like.prediction.peak_host),
              0.5, 1e-4);
  EXPECT_LT(eight.after_forward, like.after_forward);
  EXPECT_NEAR(static_cast<double>(like.after_forward - eight.after_forward), 2 * parameters / 8,
              1e-3 * parameters);
}

// Two layers of 400 million are gathered ahead of use no further than the prefetch bucket reaches,
// and the last one stays for its backward.
TEST(DeepSpeedZero3, GathersWhatItsLimitsAllow) {
  constexpr int64_t kMillion = 1'000'000;
  EXPECT_EQ(most_gathered({400 * kMillion}), 400 * kMillion);
  EXPECT_EQ(most_gathered({400 * kMillion, 400 * kMillion}), 800 * kMillion);
  // Each is let go before the one after the next comes: those of 600 come again too late.
  EXPECT_EQ(most_gathered({600 * kMillion, 600 * kMillion, 600 * kMillion}), 1200 * kMillion);
  // Small weights used again within a thousand million elements stay: half forward, half back.
  std::vector<int64_t> small(100, 50 * kMillion);
  EXPECT_LE(most_gathered(small), 600 * kMillion);
  EXPECT_GE(most_gathered(small), 500 * kMillion);
}

TEST_F(LitgptMemory, RefusesOptimizersThatAreNotTorchs) {
  EXPECT_THROW(run("smollm2-135m", "bf16-true", "lion", 1, {}), UserError);
}

TEST_F(LitgptMemory, RefusesWhatLitgptDoesNotHave) {
  const auto planned = [](auto change) {
    recipe::Recipe recipe = recipe_of("bf16-true", "adamw", 1, 1);
    recipe.lora.enabled = true;
    change(recipe);
    like_litgpt(*model("smollm2-135m"), recipe, {.tokens = 16});
  };
  planned([](recipe::Recipe&) {});
  const auto on_two = [](const char* quantize) {
    recipe::Recipe recipe = recipe_of("bf16-true", "adamw", 1, 2);
    recipe.lora.enabled = true;
    recipe.quantize = quantize;
    like_litgpt(*model("smollm2-135m"), recipe,
                {.tokens = 16, .sharding = Sharding::FsdpWhole, .ranks = 2});
  };
  EXPECT_THROW(on_two(""), UserError);
  EXPECT_THROW(on_two("bnb.nf4"), UserError);
  EXPECT_THROW(planned([](recipe::Recipe& r) { r.lora.use_dora = true; }), UserError);
  EXPECT_THROW(planned([](recipe::Recipe& r) { r.lora.target_modules = "q_proj"; }), UserError);
  EXPECT_THROW(planned([](recipe::Recipe& r) { r.quantize = "bnb.int8-training"; }), UserError);
  EXPECT_THROW(planned([](recipe::Recipe& r) {
                 r.quantize = "bnb.nf4";
                 r.optimizer.name = "sgd";
               }),
               UserError);
}

TEST_F(LitgptMemory, LeavesNothingBehind) {
  const int64_t before = memory::meta_ledger().allocated();
  run("smollm2-135m", "bf16-mixed", "adamw", 2, {.batch = 2, .tokens = 64});
  for (const auto sharding : {Sharding::Ddp, Sharding::FsdpWhole, Sharding::FsdpUnits})
    run("smollm2-135m", "bf16-true", "adamw", 4,
        {.batch = 2, .tokens = 64, .sharding = sharding, .ranks = 2});
  EXPECT_EQ(memory::meta_ledger().allocated(), before);
}

}  // namespace litgpt_like_test
}  // namespace snug::plan::rivals
