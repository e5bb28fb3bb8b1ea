// What must hold for every family of language models, with their dropout, encoders and tied
// weights: techniques change nothing, cutting and padding neither, and plans are measurements.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "plan/candidate.h"
#include "plan/predict.h"
#include "support/case_sample.h"
#include "support/fixed_order.h"
#include "support/random_recipe.h"
#include "support/source_dir.h"
#include "support/techniques.h"
#include "support/temp_folder.h"

namespace snug {
namespace families_test {

using tests::eight_in;
using tests::tiny_model;
using tests::tiny_recipe;
using tests::TinyRun;

// What trains, and how it is stored. The second layers: of T5 also parts of the first blocks.
struct Trained {
  const char* name;
  void (*set_up)(recipe::Recipe&);
};

constexpr Trained kTrained[] = {
    {"all", [](recipe::Recipe&) {}},
    {"all in bfloat16, 8-bit states",
     [](recipe::Recipe& r) {
       r.precision = "bf16-true";
       r.optimizer.name = "adamw_8bit";
     }},
    {"adapters",
     [](recipe::Recipe& r) {
       r.precision = "bf16-mixed";
       r.lora = {.enabled = true, .r = 3, .dropout = 0.2, .mlp = true, .head = true};
     }},
    {"adapters of the second layers beside 4 bits",
     [](recipe::Recipe& r) {
       r.quantize = "bnb.nf4";
       r.lora = {.enabled = true, .r = 3, .target_modules = R"(.*\.1\..*)", .use_dora = true};
     }},
};

class Families : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { tests::prepare_test_device(); }
  void SetUp() override {
    if (!tests::missing_device().empty()) GTEST_SKIP() << tests::missing_device();
    // Its chunks are padded: hundreds of thousands of accesses of memory, each of them checked.
    if (!tests::test_device().is_cpu() &&
        tiny_model(GetParam())->hugging_face_config().contains("linear_num_key_heads") &&
        std::getenv("SNUG_TEST_DELTA_RULE") == nullptr)
      GTEST_SKIP() << "minutes on a simulated GPU; SNUG_TEST_DELTA_RULE=1 runs it";
  }

  data::SampleStore samples(int count = 8, int longest = 30, uint32_t seed = 5) const {
    return tests::random_samples(count, longest, seed, tiny_model(GetParam())->reads());
  }
};

std::vector<double> train(TinyRun& run, int64_t micro_batch_size, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(run.step(eight_in(micro_batch_size), 1e-2).loss);
  return losses;
}

// Whether the model's config has a rate of dropout.
bool has_dropout(const models::Model& model) {
  const nlohmann::json config = model.hugging_face_config().flatten();
  return std::ranges::any_of(config.items(), [](const auto& item) {
    return item.key().find("drop") != std::string::npos && item.value().is_number() &&
           item.value() > 0;
  });
}

// Tokens of the busiest expert of any block, over the block's mean.
double busiest(const std::vector<double>& routed, const models::Routing& routing) {
  double most = 0;
  for (auto own = routed.begin(); own != routed.end(); own += routing.num_experts) {
    const double sum = std::accumulate(own, own + routing.num_experts, 0.0);
    if (sum > 0)
      most = std::max(most, *std::max_element(own, own + routing.num_experts) / sum *
                                static_cast<double>(routing.num_experts));
  }
  return most;
}

bool is_of_router(const std::string& name) {
  return name.find(".gate.") != std::string::npos || name.find(".router.") != std::string::npos;
}

void expect_same_weights(const TinyRun& a, const TinyRun& b) {
  ASSERT_EQ(a.engine.parameters.size(), b.engine.parameters.size());
  for (size_t i = 0; i < a.engine.parameters.size(); ++i) {
    const at::Tensor& expected = a.engine.parameters[i].tensor;
    EXPECT_TRUE(at::equal(expected, b.engine.parameters[i].tensor.to(expected.options())))
        << a.engine.parameters[i].name;
  }
}

// Each technique, and all of them with each way of checkpointing.
struct NamedRecipe {
  std::string name;
  recipe::Recipe recipe;
};

std::vector<NamedRecipe> with_techniques(const recipe::Recipe& base) {
  std::vector<NamedRecipe> all;
  for (const tests::Technique& technique : tests::kTechniques) {
    all.push_back({technique.name, base});
    technique.turn_on(all.back().recipe);
  }
  for (const char* checkpointing : {"none", "selective", "all", "every:2"}) {
    all.push_back({fmt::format("everything, checkpointing {}", checkpointing), base});
    for (const tests::Technique& technique : tests::kTechniques)
      technique.turn_on(all.back().recipe);
    all.back().recipe.activation_checkpointing = checkpointing;
  }
  return all;
}

// Dropout included: what is computed again drops the same.
TEST_P(Families, TechniquesTrainToTheSameBitsAsPlain) {
  const tests::FixedOrder fixed_order;
  const data::SampleStore store = samples();
  uint32_t seed = 0;
  for (const Trained& trained : kTrained) {
    recipe::Recipe base = tiny_recipe();
    trained.set_up(base);
    tests::fit_to_stacks(base.lora, GetParam());
    TinyRun plain(base, store, GetParam());
    const std::vector<double> expected = train(plain, 8, 3);
    const std::vector<NamedRecipe> recipes = with_techniques(base);
    for (const size_t i : tests::sample_of(
             recipes.size(), fmt::format("recipes with techniques {} of {}", ++seed, GetParam()))) {
      SCOPED_TRACE(fmt::format("{}, {}", trained.name, recipes[i].name));
      TinyRun run(recipes[i].recipe, store, GetParam());
      run.engine.copies->set_late(true);
      EXPECT_EQ(expected, train(run, 8, 3));
      expect_same_weights(plain, run);
    }
  }
}

TEST_P(Families, CutsAndPaddingTrainTheSame) {
  const data::SampleStore store = samples();
  recipe::Recipe recipe = tiny_recipe();
  recipe.model.dropout = 0;               // which would be another micro-batch's
  recipe.train.router_aux_loss_coef = 0;  // likewise
  TinyRun whole(recipe, store, GetParam());
  const std::vector<double> expected = train(whole, 8, 4);
  EXPECT_LT(expected.back(), expected.front());
  // Where gates are clamped, a rounding decides whether one at the limit has a gradient.
  const double tolerance = std::string_view(GetParam()).starts_with("gpt-oss") ? 1e-3 : 1e-4;
  for (const int64_t size : {1, 4, 8}) {
    for (const bool packing : {true, false}) {
      SCOPED_TRACE(fmt::format("micro-batch {}, {}", size, packing ? "packed" : "padded"));
      recipe.data.packing = packing;
      TinyRun cut(recipe, store, GetParam());
      const std::vector<double> losses = train(cut, size, 4);
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], expected[i], tolerance * expected[i]) << "step " << i;
    }
  }
}

// Products round frozen weights to 16 bits in any case.
TEST_P(Families, FrozenWeightsHeldIn16BitsTrainTheSame) {
  const tests::FixedOrder fixed_order;
  const data::SampleStore store = samples();
  recipe::Recipe recipe = tiny_recipe();
  recipe.precision = "bf16-mixed";
  recipe.lora = {.enabled = true, .target_modules = "all-linear"};
  tests::fit_to_stacks(recipe.lora, GetParam());
  TinyRun held(recipe, store, GetParam());
  recipe.frozen_dtype = "float32";
  TinyRun wide(recipe, store, GetParam());
  for (size_t i = 0; i < held.engine.units.size(); ++i) {
    const auto parameters = held.engine.units[i]->parameters(),
               same = wide.engine.units[i]->parameters();
    for (size_t j = 0; j < parameters.size(); ++j) {
      const nn::Parameter& parameter = *parameters[j];
      const bool is_narrow = !parameter.trained && !parameter.exact && parameter.shape.size() >= 2;
      EXPECT_EQ(parameter.value.scalar_type(), is_narrow ? at::kBFloat16 : at::kFloat)
          << parameter.name;
      EXPECT_EQ(same[j]->value.scalar_type(), at::kFloat) << parameter.name;
    }
  }
  EXPECT_EQ(train(wide, 8, 3), train(held, 8, 3));
  expect_same_weights(wide, held);
}

class Mixtures : public Families {};

// The loss that balances experts is a micro-batch's: it does not see padding, nor how often a step
// computes again, and a step's is the mean over its micro-batches by their loss tokens.
TEST_P(Mixtures, ExpertsAreBalancedInEachMicroBatch) {
  const data::SampleStore store = samples();
  recipe::Recipe recipe = tiny_recipe();
  recipe.model.dropout = 0;
  const auto loss_of = [&](double weight, const engine::SampleIndices& micro_batches) {
    recipe.train.router_aux_loss_coef = weight;
    TinyRun run(recipe, store, GetParam());
    const engine::StepResult step = run.step(micro_batches, 1e-2);
    return std::pair(step.loss, static_cast<double>(step.terms));
  };
  const engine::SampleIndices whole = {{0, 1, 2, 3}}, rest = {{4, 5}}, both = {whole[0], rest[0]};
  const auto added = [&](const engine::SampleIndices& micro_batches) {
    return loss_of(0.5, micro_batches).first - loss_of(0, micro_batches).first;
  };
  const double terms = loss_of(0, whole).second, others = loss_of(0, rest).second;
  const double packed = added(whole);
  EXPECT_GT(packed, 0.5 * 0.9);  // about k per expert, never far below where all are alike
  EXPECT_NEAR(added(both), (packed * terms + added(rest) * others) / (terms + others), 1e-5);
  recipe.data.packing = false;
  EXPECT_NEAR(added(whole), packed, 1e-5);
}

// Shares of a block's tokens are the same whatever is computed again, and padding has none.
TEST_P(Mixtures, TokensOfExpertsAreCounted) {
  const auto model = tiny_model(GetParam());
  const int64_t experts = model->routing().num_experts, k = model->routing().per_token;
  const data::SampleStore store = samples();
  recipe::Recipe recipe = tiny_recipe();
  recipe.model.dropout = 0;
  const auto step = [&] {
    TinyRun run(recipe, store, GetParam());
    return run.step(eight_in(4), 1e-2);
  };
  const engine::StepResult plain = step();
  ASSERT_EQ(std::ssize(plain.routed), model->routing().num_blocks * experts);
  for (size_t begin = 0; begin < plain.routed.size(); begin += static_cast<size_t>(experts)) {
    const auto own = plain.routed.begin() + static_cast<std::ptrdiff_t>(begin);
    const double sum = std::accumulate(own, own + experts, 0.0);
    EXPECT_TRUE(sum == 0 || sum == static_cast<double>(plain.tokens * k)) << sum;
  }
  recipe.data.packing = false;
  EXPECT_EQ(step().routed, plain.routed);
  recipe.activation_checkpointing = "all";
  std::vector<double> twice = plain.routed;
  for (double& count : twice) count *= 2;
  EXPECT_EQ(step().routed, twice);
}

// All tokens go to the same experts: nothing is needed that was not planned without knowing it.
TEST_P(Mixtures, AnyRoutingNeedsWhatIsPlanned) {
  const auto model = tiny_model(GetParam());
  const data::SampleStore store = samples(8, 40);
  const recipe::Recipe recipe = tiny_recipe();
  const plan::Prediction predicted = plan::predict(
      *model, recipe,
      data::make_micro_batch(store, store.longest_samples(8), tests::batch_options(recipe, *model)),
      128, {.device = tests::test_device().type()});
  const int64_t before = tests::test_ledger().allocated();
  tests::test_ledger().reset_peak();
  TinyRun run(recipe, store, GetParam());
  for (nn::Unit* unit : run.engine.units)
    for (nn::Parameter* parameter : unit->parameters())
      if (is_of_router(parameter->name)) parameter->value.detach().zero_();
  const std::vector<double> routed = run.step({store.longest_samples(8)}, 1e-2).routed;
  EXPECT_EQ(busiest(routed, model->routing()), static_cast<double>(model->routing().num_experts) /
                                                   static_cast<double>(model->routing().per_token));
  EXPECT_EQ(predicted.peak_allocated, tests::test_ledger().at_peak().allocated - before);
}

TEST_P(Families, DropoutIsTheSeedsAndTheRecipes) {
  const tests::FixedOrder fixed_order;
  const data::SampleStore store = samples();
  recipe::Recipe recipe = tiny_recipe();
  TinyRun first(recipe, store, GetParam()), again(recipe, store, GetParam());
  recipe.seed += 1;
  TinyRun other(recipe, store, GetParam());
  recipe.model.dropout = 0.5;
  TinyRun more(recipe, store, GetParam());
  recipe.model.dropout = 0;
  TinyRun none(recipe, store, GetParam());
  const std::vector<double> losses = train(first, 8, 2);
  EXPECT_EQ(losses, train(again, 8, 2));
  for (TinyRun* run : {&other, &more, &none})
    EXPECT_EQ(losses != train(*run, 8, 2), has_dropout(*first.model));
}

TEST_P(Families, PlanIsTheMeasurementToTheByte) {
  for (const size_t trial : tests::trials_of(50, fmt::format("plans of {}", GetParam()))) {
    std::mt19937 random = tests::trial_random(23, trial);
    recipe::Recipe recipe = tests::random_recipe(random);
    if (!recipe.lora.target_modules.empty()) recipe.lora.target_modules = R"(.*\.1\..*)";
    tests::fit_to_stacks(recipe.lora, GetParam());
    if (random() % 4 == 0) recipe.model.dropout = 0;
    SCOPED_TRACE(fmt::format("trial {}: {}", trial, tests::describe(recipe, GetParam())));
    const auto model = tiny_model(GetParam());
    const data::Reading reads = model->reads();
    const data::SampleStore store = reads.source || reads.image_size > 0
                                        ? samples(16, 40, random())
                                        : tests::with_objective(recipe, 16, 40, random);
    const int64_t size = recipe.train.micro_batch_size;
    const auto plan_of = [&](const data::MicroBatch& batch) {
      return plan::predict(
          *model, recipe, batch, 128,
          {.device = tests::test_device().type(),
           .others = tests::others_batch(store, store.longest_samples(size), recipe, *model)});
    };
    const plan::Prediction predicted = plan_of(data::make_micro_batch(
        store, store.longest_samples(size), tests::batch_options(recipe, *model)));
    // Others may have a longer source, or a longer target.
    const auto largest =
        plan::largest_micro_batch({.samples = store, .reading = model->reads()}, recipe, size);
    EXPECT_GE(plan_of(largest).peak_allocated, predicted.peak_allocated);
    const int64_t before = tests::test_ledger().allocated();
    const int64_t host_before = memory::cpu_host_ledger().allocated();
    tests::test_ledger().reset_peak();
    memory::cpu_host_ledger().reset_peak();
    {
      TinyRun run(recipe, store, GetParam());
      // A step that is skipped for its overflow would need less than planned.
      run.run.scaler().restore(64, 0);
      const auto count = static_cast<size_t>(plan::micro_batches_that_matter(recipe));
      const engine::SampleIndices longest(count, store.longest_samples(size));
      for (int step = 0; step < (recipe.delayed_parameter_update ? 2 : 1); ++step)
        EXPECT_TRUE(run.step(longest, 1e-2).updated);
    }
    tests::expect_planned_peak(predicted.peak_allocated,
                               tests::test_ledger().at_peak().allocated - before, store);
    EXPECT_EQ(predicted.peak_host + predicted.host_staging,
              memory::cpu_host_ledger().at_peak().allocated - host_before);
    EXPECT_EQ(tests::test_ledger().allocated(), before) << "bytes left behind";
    EXPECT_EQ(memory::cpu_host_ledger().allocated(), host_before) << "bytes left on the host";
  }
}

TEST_P(Families, APlanForCudaNeedsNoDevice) {
  const auto model = tiny_model(GetParam());
  const data::SampleStore store = samples(16, 40, 3);
  for (const char* precision : {"32-true", "bf16-true", "16-mixed"}) {
    recipe::Recipe recipe = tiny_recipe();
    recipe.precision = precision;
    const auto largest =
        plan::largest_micro_batch({.samples = store, .reading = model->reads()}, recipe, 8);
    const auto peak_on = [&](at::DeviceType device) {
      return plan::predict(*model, recipe, largest, 128, {.device = device}).peak_allocated;
    };
    const int64_t before = memory::meta_ledger().allocated();
    EXPECT_GT(peak_on(at::kCUDA), peak_on(at::kCPU) / 2) << precision;
    EXPECT_LT(peak_on(at::kCUDA), peak_on(at::kCPU) * 4) << precision;
    EXPECT_EQ(memory::meta_ledger().allocated(), before) << precision << " left bytes behind";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Mixtures,
                         ::testing::Values("olmoe", "qwen3-moe", "mixtral", "gpt-oss"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

INSTANTIATE_TEST_SUITE_P(
    Shapes, Families,
    ::testing::Values("ministral", "ministral3", "qwen3", "granite", "granite-hybrid",
                      "granite-hybrid-moe", "granite-hybrid-groups", "smollm3", "olmo2", "olmo3",
                      "exaone4", "phi3", "gemma", "gemma2", "gemma3", "gemma4", "gemma4-shared",
                      "gemma4-unified", "gemma4-moe", "minimax-m2", "glm", "glm4", "ernie4-5",
                      "helium", "seed-oss", "lfm2", "arcee", "qwen3-5", "qwen3-5-moe", "qwen3-next",
                      "qwen2-moe", "lfm2-moe", "deepseek-v2", "deepseek-v3", "glm4-moe", "gpt-neox",
                      "falcon", "falcon-grouped", "falcon-serial", "starcoder2", "stablelm",
                      "olmoe", "qwen3-moe", "mixtral", "gpt-oss", "mixtral-balanced",
                      "qwen3-moe-balanced", "gpt2", "opt", "opt-after", "t5", "t5-gated",
                      "idefics3", "smolvlm"),
    [](const auto& info) {
      std::string name = info.param;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// An encoder's output passes through all decoder blocks: each keeps its own input beside it.
TEST(EncoderDecoder, WhatPassesThroughIsKeptOnce) {
  tests::prepare_test_device();
  const std::filesystem::path original = tests::source_dir() / "tests/data/parity/t5/config.json";
  const data::Reading reading = tiny_model("t5")->reads();
  const data::SampleStore store = tests::random_samples(8, 12, 5, reading);
  recipe::Recipe recipe = tiny_recipe();
  recipe.activation_checkpointing = "all";
  recipe.activation_offload = true;
  const test::TempFolder folder;
  const auto batch = plan::largest_micro_batch({.samples = store, .reading = reading}, recipe, 8);
  const auto on_host = [&](int layers) {
    nlohmann::json config = nlohmann::json::parse(read_file(original));
    config["num_decoder_layers"] = layers;
    write_file_atomically(folder / "config.json", config.dump());
    const auto model = models::model_from_config(folder / "config.json");
    return plan::predict(*model, recipe, batch, 128).peak_host;
  };
  constexpr int64_t kHiddenSize = 32;
  EXPECT_EQ(on_host(4) - on_host(3), std::ssize(batch.input_ids) * kHiddenSize * 4);
}

}  // namespace families_test
}  // namespace snug
