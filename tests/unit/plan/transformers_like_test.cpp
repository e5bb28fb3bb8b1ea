// What a recipe takes in transformers' Trainer, against its own code measured on a CPU by
// bench/compare/transformers_memory.py.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/memory/ledger.h"
#include "models/family.h"
#include "plan/rivals/like.h"
#include "support/temp_folder.h"

namespace snug::plan::rivals {
namespace {

using nlohmann::json;

const std::filesystem::path kRoot = SNUG_SOURCE_DIR;

std::unique_ptr<models::Model> model_of(const json& config) {
  const test::TempFolder folder;
  const std::filesystem::path file = folder / "config.json";
  std::ofstream(file) << config;
  return models::model_from_config(file);
}

recipe::Recipe recipe_of(const json& line) {
  recipe::Recipe recipe;
  recipe.precision = line.at("precision").get<std::string>();
  recipe.optimizer.name = line.at("optimizer").get<std::string>();
  recipe.optimizer.weight_decay = 0;
  recipe.train.micro_batch_size = line.at("batch");
  recipe.train.global_batch_size =
      line.at("accumulate").get<int64_t>() * recipe.train.micro_batch_size;
  if (line.at("checkpointing").get<bool>()) recipe.activation_checkpointing = "all";
  if (const json& lora = line.at("lora"); !lora.is_null()) {
    recipe.lora.enabled = true;
    recipe.lora.r = lora.at("r");
    recipe.lora.dropout = lora.at("dropout");
    for (const json& name : lora.at("targets"))
      recipe.lora.target_modules += name.get<std::string>() + ",";
  }
  if (!line.at("quantize").is_null()) recipe.quantize = line.at("quantize").get<std::string>();
  return recipe;
}

Options options_of(const json& line) {
  return {.batch = line.at("batch"),
          .tokens = line.at("tokens"),
          .padded = line.at("padded"),
          .on_cpu = true};
}

class TransformersMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

TEST_F(TransformersMemory, IsWhatItsTrainerTakesOnACpu) {
  std::ifstream file(kRoot / "tests/data/plan/transformers_memory.jsonl");
  int cases = 0;
  for (std::string text; std::getline(file, text); ++cases) {
    const json line = json::parse(text);
    SCOPED_TRACE(text);
    const Figures like =
        like_transformers(*model_of(line.at("model")), recipe_of(line), options_of(line));
    const auto share = [&](int64_t ours, const char* key) {
      return static_cast<double>(ours) / line.at(key).get<double>();
    };
    EXPECT_NEAR(share(like.after_forward, "after_forward"), 1, 0.03);
    EXPECT_NEAR(share(like.prediction.peak_allocated, "peak"), 1, 0.03);
  }
  EXPECT_GE(cases, 60);
}

// On a GPU float32 with fewer heads of keys has no fused attention: the scores are kept.
TEST_F(TransformersMemory, OfGroupedHeadsInFloat32KeepsScores) {
  const json config{{"model_type", "llama"},   {"vocab_size", 100},      {"hidden_size", 64},
                    {"intermediate_size", 64}, {"num_hidden_layers", 1}, {"num_attention_heads", 4},
                    {"num_key_value_heads", 2}};
  const auto kept = [&](const char* precision) {
    recipe::Recipe recipe;
    recipe.precision = precision;
    recipe.train.micro_batch_size = recipe.train.global_batch_size = 1;
    return like_transformers(*model_of(config), recipe, {.tokens = 512}).kept_by_blocks;
  };
  constexpr int64_t kScores = 4 * 512 * 512 * 4;
  EXPECT_GT(kept("32-true"), kScores);
  EXPECT_LT(kept("bf16-true"), kScores);
}

TEST_F(TransformersMemory, RefusesWhatIsNotPlanned) {
  const auto planned = [](auto change, const char* family = "llama") {
    recipe::Recipe recipe;
    Options options{.tokens = 16};
    change(recipe, options);
    json config{{"model_type", family},    {"vocab_size", 100},      {"hidden_size", 64},
                {"intermediate_size", 64}, {"num_hidden_layers", 1}, {"num_attention_heads", 4},
                {"num_key_value_heads", 2}};
    like_transformers(*model_of(config), recipe, options);
  };
  planned([](recipe::Recipe&, Options&) {});
  EXPECT_THROW(planned([](recipe::Recipe&, Options&) {}, "granite"), UserError);
  EXPECT_THROW(planned([](recipe::Recipe&, Options& o) { o.ranks = 2; }), UserError);
  EXPECT_THROW(planned([](recipe::Recipe& r, Options&) { r.optimizer.name = "lion"; }), UserError);
  EXPECT_THROW(planned([](recipe::Recipe& r, Options&) { r.optimizer_offload = "disk:x"; }),
               UserError);
  const auto lora = [&](auto change) {
    planned([&](recipe::Recipe& r, Options&) {
      r.lora.enabled = true;
      change(r);
    });
  };
  lora([](recipe::Recipe&) {});
  EXPECT_THROW(lora([](recipe::Recipe& r) { r.lora.use_dora = true; }), UserError);
  EXPECT_THROW(lora([](recipe::Recipe& r) { r.quantize = "bnb.int8"; }), UserError);
}

// Large states of paged optimizers are none of the allocator's: 8 bytes a weight, or 2.
TEST_F(TransformersMemory, OfPagedOptimizersIsApart) {
  const json config{{"model_type", "llama"},   {"vocab_size", 2000},
                    {"hidden_size", 256},      {"intermediate_size", 512},
                    {"num_hidden_layers", 1},  {"num_attention_heads", 4},
                    {"num_key_value_heads", 4}};
  const auto paged = [&](const char* optimizer) {
    recipe::Recipe recipe;
    recipe.optimizer.name = optimizer;
    recipe.optimizer_offload = "cpu";
    return like_transformers(*model_of(config), recipe, {.tokens = 16}).paged_states;
  };
  // Both 2000 x 256; the MLP's three of 256 x 512. Attention's four have fewer than 100,000.
  constexpr int64_t kLarge = 2 * 2000 * 256 + 3 * 256 * 512;
  EXPECT_EQ(paged("adamw"), 8 * kLarge);
  // The Trainer keeps float32 states of the embedding.
  EXPECT_EQ(paged("adamw_8bit"), 2 * kLarge + 6 * 2000 * 256);
}

TEST_F(TransformersMemory, LeavesNothingBehind) {
  const json config{{"model_type", "qwen3"},   {"vocab_size", 100},      {"hidden_size", 64},
                    {"intermediate_size", 64}, {"num_hidden_layers", 2}, {"num_attention_heads", 4},
                    {"num_key_value_heads", 2}};
  const int64_t before = memory::meta_ledger().allocated();
  recipe::Recipe recipe;
  recipe.activation_checkpointing = "all";
  like_transformers(*model_of(config), recipe, {.batch = 2, .tokens = 32, .padded = true});
  EXPECT_EQ(memory::meta_ledger().allocated(), before);
}

}  // namespace
}  // namespace snug::plan::rivals
