// What a recipe takes in a Lightning script with another library's model: transformers' BLIP-2
// against its own code counted by bench/compare/blip2_memory.py, minGPT under FSDP against figures
// that people measured on GPUs and published.
// SPDX-License-Identifier: Apache-2.0
#include "plan/rivals/like.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "core/memory/ledger.h"
#include "recipe/parse.h"

namespace snug::plan::rivals {
namespace {

using nlohmann::json;

const std::filesystem::path kRoot = SNUG_SOURCE_DIR;

// A model's own configuration with fewer layers in each stack.
json blip2(const std::string& name, int64_t layers) {
  json config = json::parse(std::ifstream(kRoot / "recipes/models" / (name + ".json")));
  for (const char* part : {"vision_config", "qformer_config", "text_config"})
    for (const char* key : {"num_hidden_layers", "num_layers", "num_decoder_layers"})
      if (config[part].contains(key)) config[part][key] = layers;
  return config;
}

json mingpt(int64_t layers, int64_t heads, int64_t width) {
  return {{"model_type", "gpt2"}, {"n_layer", layers}, {"n_head", heads},
          {"n_embd", width},      {"vocab_size", 65},  {"n_positions", 128}};
}

recipe::Recipe recipe_of(const std::string& precision, const std::string& optimizer, int64_t batch,
                         int64_t global_batch) {
  recipe::Recipe recipe;
  recipe.precision = precision;
  recipe.optimizer.name = optimizer;
  recipe.optimizer.weight_decay = optimizer == "sgd" ? 0 : 0.01;
  recipe.train.micro_batch_size = batch;
  recipe.train.global_batch_size = global_batch;
  return recipe;
}

class LightningMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

TEST_F(LightningMemory, IsThatOfTransformersOwnCode) {
  std::ifstream file(kRoot / "tests/data/plan/blip2_memory.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const json expected = json::parse(line);
    SCOPED_TRACE(line);
    const int64_t batch = expected.at("batch");
    recipe::Recipe recipe = recipe_of(expected.at("precision"), expected.at("optimizer"), batch,
                                      batch * expected.at("accumulate").get<int64_t>());
    if (expected.at("checkpointing").get<bool>()) recipe.activation_checkpointing = "all";
    if (!expected.at("lora").is_null()) {
      recipe.lora.enabled = true;
      recipe.lora.r = expected.at("lora").at("r");
      recipe.lora.target_modules = "q,v";
    }
    const Figures like = like_lightning(
        blip2(expected.at("model"), expected.at("layers")), recipe,
        {.batch = batch, .tokens = expected.at("tokens"), .labels = expected.at("labels")});
    const auto share = [&](int64_t ours, const char* key) {
      return static_cast<double>(ours) / expected.at(key).get<double>();
    };
    EXPECT_NEAR(share(like.after_forward, "after_forward"), 1, 0.005);
    EXPECT_NEAR(share(like.prediction.peak_allocated, "peak"), 1, 0.01);
  }
  EXPECT_GE(cases, 10);
}

// Reserved MiB on each of four V100 16 GB, and none where it ran out of memory. Two of the runs end
// at 14992: that is what CUDA, cuBLAS and NCCL leave. From batch 8 on, says the source, and for the
// larger model after batch 16, cudaMalloc has to try again.
TEST_F(LightningMemory, OfMinGptIsAboutWhatWasPublished) {
  struct Row {
    int64_t layers, batch;
    bool checkpointing;
    double published, tolerance = 0.1;
    bool retries = false;
  };
  constexpr Row kRows[] = {
      {48, 1, false, 9028},
      {48, 2, false, 10510, 0.11},
      {48, 4, false, 12488},
      {48, 7, false, 14736},
      {48, 8, false, 14992, 0.1, true},
      {48, 8, true, 8458},
      {48, 16, true, 8604},
      {48, 32, true, 10188, 0.14},
      {48, 64, true, 11490},
      {96, 8, true, 14340},
      // The source says that it gets by without, with 8 MiB less than the next.
      {96, 16, true, 14984, 0.1, true},
      {96, 32, true, 14992, 0.1, true},
  };
  constexpr int64_t kUsable = 15000 * kMiB;
  const auto planned = [&](int64_t layers, int64_t batch, bool checkpointing) {
    recipe::Recipe recipe = recipe_of("16-mixed", "adamw", batch, 4 * batch);
    if (checkpointing) recipe.activation_checkpointing = "all";
    return like_lightning(mingpt(layers, 25, 1600), recipe,
                          {.batch = batch,
                           .tokens = 128,
                           .reserved_limit = kUsable,
                           .sharding = Sharding::FsdpUnits,
                           .ranks = 4});
  };
  for (const Row& row : kRows) {
    const Figures like = planned(row.layers, row.batch, row.checkpointing);
    SCOPED_TRACE(fmt::format("{} layers, batch {}", row.layers, row.batch));
    EXPECT_TRUE(like.prediction.fits_reserved);
    const double mib = static_cast<double>(like.prediction.peak_reserved) / kMiB;
    EXPECT_NEAR(mib / row.published, 1, row.tolerance);
    EXPECT_EQ(like.prediction.driver_calls.retries > 0, row.retries);
  }
  // Nine samples were too many: the plan counts 99 % of the memory, with two blocks gathered.
  EXPECT_GT(planned(48, 9, false).prediction.peak_reserved, 0.98 * kUsable);
}

// Weights W, gradients and two states: 4 W; with DDP the buckets are the gradients.
TEST_F(LightningMemory, OfManyGpusIsThatOfOneWithParts) {
  const json config = blip2("blip2-opt-2.7b", 2);
  const auto after_forward = [&](Sharding sharding, int64_t ranks) {
    return static_cast<double>(
        like_lightning(config, recipe_of("bf16-true", "adamw", 2, 2 * ranks),
                       {.batch = 2, .tokens = 40, .sharding = sharding, .ranks = ranks})
            .after_forward);
  };
  const double one = after_forward(Sharding::None, 1);
  EXPECT_NEAR(after_forward(Sharding::DdpBucketViews, 4) / one, 1, 0.001);
  EXPECT_LT(after_forward(Sharding::FsdpUnits, 8), one / 2);
}

TEST_F(LightningMemory, OfOptimizers) {
  const json config = blip2("blip2-opt-2.7b", 1);
  const auto states = [&](const char* optimizer, const char* offload) {
    recipe::Recipe recipe = recipe_of("bf16-true", optimizer, 1, 1);
    recipe.optimizer_offload = offload;
    const Figures like = like_lightning(config, recipe, {.batch = 1, .tokens = 40});
    return like.phases.back().by_category[static_cast<size_t>(memory::Category::Optimizer)];
  };
  const auto adamw = static_cast<double>(states("adamw", "none"));
  // Two bytes and two scales of a block of 256 instead of twice two bytes.
  EXPECT_NEAR(static_cast<double>(states("adamw_8bit", "none")) / adamw, (2 + 8.0 / 256) / 4,
              0.002);
  EXPECT_EQ(states("sgd", "none"), 0);
  EXPECT_EQ(states("adamw", "cpu"), 0);
  EXPECT_THROW(states("lion", "none"), UserError);
  EXPECT_THROW(states("sgd", "cpu"), UserError);
}

// bitsandbytes leaves the Q-Former, T5's wo and the head as they are.
TEST_F(LightningMemory, OfQLoraIsFourBitsOfMostLayers) {
  recipe::Recipe recipe = recipe_of("32-true", "adamw", 2, 2);
  recipe.lora.enabled = true;
  recipe.lora.r = 16;
  recipe.lora.target_modules = "q,v";
  const json config = blip2("blip2-flan-t5-xxl", 2);
  const Options options{.batch = 2, .tokens = 82, .labels = 50};
  const auto weights = [](const Figures& like) {
    return static_cast<double>(
        like.phases.front().by_category[static_cast<size_t>(memory::Category::Parameters)]);
  };
  const Figures lora = like_lightning(config, recipe, options);
  recipe.quantize = "bnb.nf4";
  const Figures qlora = like_lightning(config, recipe, options);
  const double quantized = 2.0 * (2 * 4 + 4) * 4096 * 4096 /* q, k, v, o */ +
                           4.0 * 2 * 4096 * 10240 /* wi_0, wi_1 */ +
                           2.0 * (4 * 1408 * 1408 + 2 * 1408 * 6144) /* vision */ + 768.0 * 4096;
  EXPECT_NEAR((weights(lora) - weights(qlora)) / (quantized * (4 - 0.5 - 4.0 / 64)), 1, 0.001);
  // One block's at a time.
  EXPECT_LT(qlora.kept_by_blocks, lora.kept_by_blocks / 2);
  recipe.quantize = "bnb.int8";
  EXPECT_THROW(like_lightning(config, recipe, options), UserError);
}

// BLIP-2's recipes on an H100 of 94 GB: what ran out of memory there does so here.
TEST_F(LightningMemory, OfShippedRecipesFitsAsPublished) {
  int recipes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "recipes/blip2")) {
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(name);
    const std::string words[] = {name.ends_with("lora") ? "finetune_lora" : "finetune_full",
                                 "--config", entry.path().string()};
    const recipe::Recipe recipe = recipe::parse_command_line(words).recipe;
    const std::string model = std::filesystem::path(recipe.checkpoint_dir).filename().string();
    const json config = json::parse(std::ifstream(kRoot / "recipes/models" / (model + ".json")));
    const int64_t ranks = std::stoll(recipe.devices);
    const int64_t usable = static_cast<int64_t>(93.1 * kGiB) - 600 * kMiB;
    const Figures like =
        like_lightning(config, recipe,
                       {.batch = recipe.train.micro_batch_size,
                        .tokens = 82,
                        .labels = 50,
                        .reserved_limit = usable,
                        .sharding = ranks == 1                 ? Sharding::None
                                    : recipe.strategy == "ddp" ? Sharding::DdpBucketViews
                                                               : Sharding::FsdpUnits,
                        .ranks = ranks});
    const bool out_of_memory =
        name == "bs01-baseline" || name == "bs08-xxl" || name == "bs09-xxl-batch1";
    EXPECT_EQ(like.prediction.fits_reserved, !out_of_memory)
        << format_bytes(like.prediction.peak_allocated) << " allocated, "
        << format_bytes(like.prediction.peak_reserved) << " reserved";
    ++recipes;
  }
  EXPECT_EQ(recipes, 18);
}

TEST_F(LightningMemory, LeavesNothingBehind) {
  const int64_t before = memory::meta_ledger().allocated();
  recipe::Recipe recipe = recipe_of("bf16-mixed", "adamw", 1, 4);
  for (const auto sharding : {Sharding::None, Sharding::DdpBucketViews, Sharding::FsdpUnits})
    for (const char* checkpointing : {"none", "all"}) {
      recipe.activation_checkpointing = checkpointing;
      like_lightning(blip2("blip2-flan-t5-xl", 1), recipe,
                     {.batch = 1, .tokens = 40, .labels = 8, .sharding = sharding, .ranks = 2});
      like_lightning(mingpt(2, 2, 32), recipe,
                     {.batch = 1, .tokens = 16, .sharding = sharding, .ranks = 2});
    }
  EXPECT_EQ(memory::meta_ledger().allocated(), before);
}

TEST_F(LightningMemory, RefusesOtherModels) {
  EXPECT_FALSE(has_lightning_model({{"model_type", "llama"}}));
  EXPECT_THROW(like_lightning({{"model_type", "llama"}}, {}, {}), UserError);
}

}  // namespace
}  // namespace snug::plan::rivals
