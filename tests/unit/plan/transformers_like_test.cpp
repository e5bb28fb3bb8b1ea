// What a recipe takes in transformers' Trainer, against its own code measured on a CPU by
// bench/compare/transformers_memory.py.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/memory/ledger.h"
#include "models/family.h"
#include "plan/rivals/like.h"
#include "support/temp_folder.h"

namespace snug::plan::rivals {
namespace transformers_like_test {

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
  recipe.train.global_batch_size = line.value("ranks", int64_t{1}) *
                                   line.at("accumulate").get<int64_t>() *
                                   recipe.train.micro_batch_size;
  if (line.at("checkpointing").get<bool>()) recipe.activation_checkpointing = "all";
  if (const json& lora = line.at("lora"); !lora.is_null()) {
    recipe.lora.enabled = true;
    recipe.lora.r = lora.at("r");
    recipe.lora.dropout = lora.at("dropout");
    recipe.lora.use_dora = lora.value("dora", false);
    const json& targets = lora.at("targets");
    if (targets.is_string()) recipe.lora.target_modules = targets.get<std::string>();
    if (targets.is_array())
      for (const json& name : targets) recipe.lora.target_modules += name.get<std::string>() + ",";
  }
  if (!line.at("quantize").is_null()) recipe.quantize = line.at("quantize").get<std::string>();
  const json zero = line.value("zero", json::object());
  if (zero.contains("offload_optimizer")) {
    const bool on_disk = zero.at("offload_optimizer").at("device") == "nvme";
    recipe.optimizer_offload = on_disk ? "disk:x" : "cpu";
  }
  recipe.weight_streaming = zero.contains("offload_param");
  if (line.value("offload", false)) {
    recipe.optimizer_offload = "cpu";
    recipe.weight_streaming = true;
  }
  return recipe;
}

recipe::DeepSpeed deepspeed_of(const json& settings) {
  constexpr int64_t kAuto = recipe::DeepSpeed::kAuto;
  recipe::DeepSpeed all;
  return {.reduce_bucket = settings.value("reduce_bucket_size", kAuto),
          .prefetch_bucket = kAuto,
          .persistence_threshold = kAuto,
          .max_live = settings.value("stage3_max_live_parameters", all.max_live),
          .max_reuse_distance = settings.value("stage3_max_reuse_distance", all.max_reuse_distance),
          .sub_group = settings.value("sub_group_size", all.sub_group),
          .overlaps = settings.value("overlap_comm", false),
          .host_group = settings.value("zero_hpz_partition_size", int64_t{1})};
}

Options options_of(const json& line) {
  static const std::map<std::string, Sharding> kShardings{
      {"none", Sharding::None},        {"ddp", Sharding::Ddp},
      {"fsdp", Sharding::FullyShard},  {"fsdp-grad-op", Sharding::FullyShardGradients},
      {"zero1", Sharding::ZeroStates}, {"zero2", Sharding::ZeroGradients},
      {"zero3", Sharding::ZeroWeights}};
  return {.batch = line.at("batch"),
          .tokens = line.at("tokens"),
          .padded = line.at("padded"),
          .sharding = kShardings.at(line.value("sharding", "none")),
          .ranks = line.value("ranks", int64_t{1}),
          .on_cpu = !line.contains("gpu"),
          .liger = line.value("liger", false),
          .deepspeed = deepspeed_of(line.value("zero", json::object())),
          .own_loop = line.value("own_loop", false)};
}

class TransformersMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }
};

// A CPU is the host too: what is offloaded stands in the same measurement.
TEST_F(TransformersMemory, IsWhatItsTrainerTakesOnACpu) {
  std::ifstream file(kRoot / "tests/data/plan/transformers_memory.jsonl");
  int cases = 0;
  for (std::string text; std::getline(file, text); ++cases) {
    const json line = json::parse(text);
    SCOPED_TRACE(text);
    const recipe::Recipe recipe = recipe_of(line);
    const Figures like = like_transformers(*model_of(line.at("model")), recipe, options_of(line));
    const auto share = [&](int64_t ours, const char* key) {
      return static_cast<double>(ours) / line.at(key).get<double>();
    };
    EXPECT_EQ(like.prediction.peak_host, 0);
    const bool is_offloaded = recipe.updates_on_host() || recipe.weight_streaming;
    const double tolerance = is_offloaded ? 0.01 : 0.03;
    EXPECT_NEAR(share(like.after_forward, "after_forward"), 1, tolerance);
    EXPECT_NEAR(share(like.prediction.peak_allocated, "peak"), 1, tolerance);
  }
  EXPECT_GE(cases, 419);
}

// Runs on a GPU whose figures others have published: the most that PyTorch reserved. How long the
// longest batch was is not published, but 768 tokens at most, and the same in all runs, which read
// the same data in the same order: the first run tells, the others are held to it.
TEST_F(TransformersMemory, IsWhatWasPublished) {
  std::ifstream file(kRoot / "tests/data/plan/transformers_published.jsonl");
  std::vector<json> runs;
  for (std::string text; std::getline(file, text);) runs.push_back(json::parse(text));
  ASSERT_GE(runs.size(), 5U);
  const auto share = [](const json& run, int64_t tokens) {
    Options options = options_of(run);
    options.tokens = tokens;
    const Figures like = like_transformers(*model_of(run.at("model")), recipe_of(run), options);
    return static_cast<double>(like.prediction.peak_reserved) / run.at("reserved").get<double>();
  };
  int64_t longest = 768;
  while (longest > 0 && share(runs[0], longest) > 1) longest -= 8;
  EXPECT_GT(longest, 600);
  for (const json& run : runs) {
    SCOPED_TRACE(run.dump());
    EXPECT_NEAR(share(run, longest), 1, 0.05);
    EXPECT_GT(share(run, 768), 1);
    EXPECT_LT(share(run, 768), 1.15);
  }
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

// LLM.int8 keeps inputs of layers where recomputation does not see them; 4-bit layers keep none.
TEST_F(TransformersMemory, OfLlmInt8SurvivesRecomputation) {
  const json config{{"model_type", "llama"},   {"vocab_size", 100},
                    {"hidden_size", 64},       {"intermediate_size", 256},
                    {"num_hidden_layers", 4},  {"num_attention_heads", 4},
                    {"num_key_value_heads", 4}};
  const auto kept = [&](const char* quantize, const char* checkpointing) {
    recipe::Recipe recipe;
    recipe.precision = "bf16-true";
    recipe.lora.enabled = true;
    recipe.lora.dropout = 0;
    recipe.lora.target_modules = "all-linear";
    recipe.quantize = quantize;
    recipe.activation_checkpointing = checkpointing;
    recipe.train.micro_batch_size = recipe.train.global_batch_size = 1;
    return like_transformers(*model_of(config), recipe, {.tokens = 512}).kept_by_blocks;
  };
  // The 7 layers' inputs in float32: attention's, its output's, the MLP's, the down
  // projection's.
  constexpr int64_t kInputs = 4 * 512 * (3 * 64 + 256) * 4;
  EXPECT_NEAR(kept("bnb.int8", "all") - kept("bnb.nf4", "all"), kInputs, 0.01 * kInputs);
  EXPECT_GT(kept("bnb.int8", "none"), kept("bnb.int8", "all"));
}

TEST_F(TransformersMemory, RefusesWhatIsNotPlanned) {
  const json llama{{"model_type", "llama"},   {"vocab_size", 100},      {"hidden_size", 64},
                   {"intermediate_size", 64}, {"num_hidden_layers", 1}, {"num_attention_heads", 4},
                   {"num_key_value_heads", 2}};
  const auto planned = [](const json& config, auto change) {
    recipe::Recipe recipe;
    Options options{.tokens = 16};
    change(recipe, options);
    like_transformers(*model_of(config), recipe, options);
  };
  planned(llama, [](recipe::Recipe&, Options&) {});
  EXPECT_THROW(planned({{"model_type", "gpt2"}, {"n_layer", 1}, {"n_embd", 64}, {"n_head", 2}},
                       [](recipe::Recipe&, Options&) {}),
               UserError);
  json stablelm = llama;
  stablelm["model_type"] = "stablelm";
  planned(stablelm, [](recipe::Recipe&, Options&) {});
  EXPECT_THROW(planned(stablelm, [](recipe::Recipe&, Options& o) { o.liger = true; }), UserError);
  const auto fsdp = [](auto change) {
    return [change](recipe::Recipe& r, Options& o) {
      o.ranks = 2;
      o.sharding = Sharding::FullyShard;
      change(r);
    };
  };
  planned(llama, fsdp([](recipe::Recipe&) {}));
  const auto offloaded = [](const char* optimizer, bool streams) {
    return [=](recipe::Recipe& r) {
      r.optimizer.name = optimizer;
      r.optimizer_offload = "cpu";
      r.weight_streaming = streams;
    };
  };
  planned(llama, fsdp(offloaded("sgd", true)));
  EXPECT_THROW(planned(llama, fsdp(offloaded("adamw_8bit", true))), UserError);
  EXPECT_THROW(planned(llama, fsdp(offloaded("adamw", false))), UserError);
  EXPECT_THROW(planned(llama, fsdp([](recipe::Recipe& r) { r.optimizer.name = "adamw_8bit"; })),
               UserError);
  const auto zero = [](Sharding stage, auto change) {
    return [=](recipe::Recipe& r, Options& o) {
      o.ranks = 2;
      o.sharding = stage;
      change(r, o);
    };
  };
  const auto quantized = [](recipe::Recipe& r, Options&) {
    r.lora.enabled = true;
    r.lora.target_modules = "all-linear";
    r.quantize = "bnb.nf4";
  };
  planned(llama, zero(Sharding::ZeroGradients, quantized));
  EXPECT_THROW(planned(llama, zero(Sharding::ZeroWeights, quantized)), UserError);
  const auto without_buckets = [](const char* offload) {
    return [offload](recipe::Recipe& r, Options& o) {
      r.optimizer_offload = offload;
      o.deepspeed.has_buckets = false;
    };
  };
  EXPECT_THROW(planned(llama, zero(Sharding::ZeroStates, without_buckets("none"))), UserError);
  planned(llama, zero(Sharding::ZeroStates, without_buckets("cpu")));
  EXPECT_THROW(planned(llama, zero(Sharding::ZeroWeights, without_buckets("cpu"))), UserError);
  const auto half = [](recipe::Recipe& r, Options& o) {
    r.optimizer_offload = "cpu";
    o.deepspeed.offloaded = 0.5;
  };
  planned(llama, zero(Sharding::ZeroGradients, half));
  EXPECT_THROW(planned(llama, zero(Sharding::ZeroWeights, half)), UserError);
  EXPECT_THROW(planned(llama, zero(Sharding::ZeroWeights,
                                   [](recipe::Recipe& r, Options& o) {
                                     r.optimizer_offload = "cpu";
                                     o.deepspeed.super_offload = true;
                                   })),
               UserError);
  json olmoe = llama;
  olmoe.update({{"model_type", "olmoe"}, {"num_experts", 4}, {"num_experts_per_tok", 2}});
  const auto adapts = [](const char* targets) {
    return [targets](recipe::Recipe& r, Options&) {
      r.lora.enabled = true;
      r.lora.target_modules = targets;
    };
  };
  planned(olmoe, adapts("q_proj,v_proj"));
  EXPECT_THROW(planned(olmoe, adapts("all-linear")), UserError);
  EXPECT_THROW(planned(llama, [](recipe::Recipe& r, Options&) { r.optimizer.name = "lion"; }),
               UserError);
  EXPECT_THROW(planned(llama, [](recipe::Recipe& r, Options&) { r.optimizer_offload = "disk:x"; }),
               UserError);
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

// What is on the host, which a measurement on a CPU cannot tell from the device: float32 masters,
// gradients and two moments of a part, and as many bytes in 16 bits. With stage 2 one buffer more
// of the largest weight; with stage 3 the weights themselves.
TEST_F(TransformersMemory, OfOffloadedOptimizersIsOnTheHost) {
  const json config{{"model_type", "llama"},   {"vocab_size", 2000},
                    {"hidden_size", 256},      {"intermediate_size", 512},
                    {"num_hidden_layers", 1},  {"num_attention_heads", 4},
                    {"num_key_value_heads", 4}};
  constexpr int64_t kEmbedding = 2000 * 256;
  constexpr int64_t kWeights = 2 * kEmbedding + 3 * 256 * 512 + 4 * 256 * 256 + 3 * 256;
  const auto planned = [&](Sharding stage, const char* optimizer, const char* offload,
                           bool streams) {
    recipe::Recipe recipe;
    recipe.precision = "bf16-true";
    recipe.optimizer.name = optimizer;
    recipe.optimizer_offload = offload;
    recipe.weight_streaming = streams;
    recipe.train.micro_batch_size = 1;
    recipe.train.global_batch_size = 2;
    Options options{.tokens = 16, .sharding = stage, .ranks = 2};
    options.deepspeed.reduce_bucket = 256 * 256;
    return like_transformers(*model_of(config), recipe, options).prediction;
  };
  const auto host = [&](auto... given) { return planned(given...).peak_host; };
  constexpr int64_t kStates = kWeights / 2 * (4 * 4 + 2);
  EXPECT_EQ(host(Sharding::ZeroStates, "adamw", "cpu", false), kStates + 2 * kEmbedding);
  EXPECT_EQ(host(Sharding::ZeroGradients, "sgd", "cpu", false), kStates + 2 * kEmbedding);
  EXPECT_EQ(host(Sharding::ZeroGradients, "adamw", "disk:x", true), kStates + 2 * kEmbedding);
  EXPECT_EQ(host(Sharding::ZeroWeights, "adamw", "cpu", false), kStates);
  EXPECT_EQ(host(Sharding::ZeroWeights, "adamw", "none", true), kWeights);
  EXPECT_EQ(host(Sharding::ZeroWeights, "adamw", "cpu", true), kStates + kWeights);
  EXPECT_EQ(host(Sharding::ZeroWeights, "adamw", "none", false), 0);
  // FSDP2's rows, gradients and moments.
  const Prediction fsdp = planned(Sharding::FullyShard, "adamw", "cpu", true);
  EXPECT_EQ(fsdp.peak_host, kWeights / 2 * 4 * 2);
  EXPECT_EQ(fsdp.by_category[static_cast<size_t>(memory::Category::Optimizer)], 0);
  // Masters and moments leave the device.
  const auto on_device = [&](const char* offload) {
    const Prediction p = planned(Sharding::ZeroWeights, "adamw", offload, false);
    return p.by_category[static_cast<size_t>(memory::Category::Optimizer)];
  };
  EXPECT_EQ(on_device("none"), kWeights / 2 * 3 * 4);
  EXPECT_EQ(on_device("cpu"), 0);
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
  const int64_t before_on_host = memory::meta_host_ledger().allocated();
  recipe.optimizer_offload = "cpu";
  recipe.weight_streaming = true;
  like_transformers(*model_of(config), recipe, {.sharding = Sharding::ZeroWeights, .ranks = 2});
  EXPECT_EQ(memory::meta_ledger().allocated(), before);
  EXPECT_EQ(memory::meta_host_ledger().allocated(), before_on_host);
}

}  // namespace transformers_like_test
}  // namespace snug::plan::rivals
