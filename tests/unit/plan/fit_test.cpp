// Full-size models on devices of the table, and the search for what fits.
// SPDX-License-Identifier: Apache-2.0
#include "plan/fit.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/bytes.h"
#include "models/family.h"

namespace snug::plan {
namespace {

class Fitting : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }

  static std::unique_ptr<models::Model> model(const std::string& name) {
    return models::model_from_config(std::filesystem::path(SNUG_SOURCE_DIR) / "recipes/models" /
                                     (name + ".json"));
  }
  static data::SampleStore samples(int64_t count, int64_t length) {
    data::SampleStore store;
    const std::vector<int32_t> ids(static_cast<size_t>(length), 1);
    for (int64_t i = 0; i < count; ++i) store.append({.ids = ids, .labels = ids});
    return store;
  }
  static recipe::Recipe recipe(const std::string& precision, int64_t micro, int64_t global) {
    recipe::Recipe r;
    r.precision = precision;
    r.train.micro_batch_size = micro;
    r.train.global_batch_size = global;
    return r;
  }
};

// Weights, gradients and two states of a true precision: four times the weights, before
// activations.
TEST_F(Fitting, ResidentBytesAreFourTimesTheWeights) {
  const auto seven = model("open-llama-7b");
  EXPECT_EQ(seven->num_parameters(), 6738415616);
  const Candidate c = evaluate(*seven, recipe("bf16-true", 4, 16), {samples(16, 512), 512},
                               find_profile("a100-80", 0));
  const double weights = 2 * 6738415616.0;
  EXPECT_GT(static_cast<double>(c.prediction.peak_allocated), 4 * weights);
  EXPECT_LT(static_cast<double>(c.prediction.peak_allocated), 5 * weights);
  EXPECT_GE(c.prediction.peak_reserved, c.prediction.peak_allocated);
  EXPECT_LT(static_cast<double>(c.prediction.peak_reserved),
            1.1 * static_cast<double>(c.prediction.peak_allocated));
  EXPECT_GT(c.cost.tokens_per_second(), 100);
  EXPECT_FALSE(c.prediction.timeline.empty());
}

// Rounding float32 factors to TF32 takes products to tensor cores; it needs no byte.
TEST_F(Fitting, MatmulPrecisionIsTimeNotBytes) {
  const auto tiny = model("tiny-llama");
  const auto planned = [&](const char* precision, const char* device, const char* matmul) {
    recipe::Recipe r = recipe(precision, 4, 4);
    r.matmul_precision = matmul;
    return evaluate(*tiny, r, {samples(4, 512), 512}, find_profile(device, 0));
  };
  for (const auto& [device, times] : {std::pair("a100-80", 8.0), {"h100-80", 494.5 / 67}}) {
    const Candidate high = planned("32-true", device, "high"),
                    highest = planned("32-true", device, "highest");
    EXPECT_EQ(high.prediction.peak_allocated, highest.prediction.peak_allocated);
    EXPECT_EQ(high.prediction.peak_reserved, highest.prediction.peak_reserved);
    EXPECT_NEAR(highest.cost.products_seconds, times * high.cost.products_seconds,
                1e-9 * highest.cost.products_seconds);
    EXPECT_GT(highest.cost.seconds(), 2 * high.cost.seconds()) << device;
    EXPECT_EQ(planned("32-true", device, "medium").cost.seconds(), high.cost.seconds());
    EXPECT_EQ(planned("bf16-true", device, "high").cost.seconds(),
              planned("bf16-true", device, "highest").cost.seconds());
  }
}

// The course's single-GPU rows of full fine-tuning on an A100 80 GB.
TEST_F(Fitting, SameRowsFitAsPublished) {
  struct Row {
    const char* model;
    const char* precision;
    const char* optimizer;
    int64_t micro, global;
    bool fits;
  };
  constexpr Row kRows[] = {
      {"tiny-llama", "32-true", "adamw", 8, 8, true},
      {"tiny-llama", "32-true", "adamw", 8, 32, true},
      {"tiny-llama", "bf16-true", "adamw", 8, 32, true},
      {"tiny-llama", "bf16-mixed", "adamw", 8, 32, true},
      {"open-llama-3b", "bf16-true", "adamw", 8, 32, true},
      {"open-llama-7b", "bf16-true", "adamw", 4, 16, true},
      {"open-llama-13b", "bf16-true", "adamw", 1, 1, false},
      {"open-llama-13b", "bf16-true", "sgd", 1, 1, true},
  };
  const DeviceProfile a100 = find_profile("a100-80", 0);
  for (const Row& row : kRows) {
    recipe::Recipe r = recipe(row.precision, row.micro, row.global);
    r.optimizer.name = row.optimizer;
    const Candidate c = evaluate(*model(row.model), r, {samples(row.global, 512), 512}, a100);
    EXPECT_EQ(fits(c, a100), row.fits) << row.model << " " << row.precision << " " << row.optimizer
                                       << ": " << format_bytes(c.prediction.peak_allocated);
  }
}

TEST_F(Fitting, OffloadingFitsSevenIntoSixteenAndThirteenIntoTwentyFour) {
  for (const auto& [name, device] :
       {std::pair{"open-llama-7b", "v100-16"}, std::pair{"open-llama-13b", "rtx-4090"},
        std::pair{"open-llama-13b", "a100-80"}}) {
    const DeviceProfile profile = find_profile(device, 0);
    const Fit found =
        fit(*model(name), recipe("bf16-true", 1, 16), {samples(16, 512), 512}, profile);
    ASSERT_TRUE(found.best) << name << " on " << device;
    EXPECT_TRUE(fits(*found.best, profile));
    EXPECT_LE(found.best->prediction.peak_reserved, profile.usable_bytes());
  }
}

TEST_F(Fitting, TheFrontFallsInMemoryAndRisesInTime) {
  const Fit found = fit(*model("smollm2-135m"), recipe("bf16-true", 4, 8), {samples(8, 256), 256},
                        find_profile("rtx-4090", 0));
  ASSERT_GT(found.front.size(), 1U);
  for (size_t i = 1; i < found.front.size(); ++i) {
    EXPECT_LT(bytes_on_device(found.front[i].prediction, at::kCUDA),
              bytes_on_device(found.front[i - 1].prediction, at::kCUDA));
    EXPECT_GE(found.front[i].cost.seconds(), found.front[i - 1].cost.seconds());
  }
}

TEST_F(Fitting, WhereNothingFitsTheSmallestIsTold) {
  const auto llm = model("smollm2-135m");
  recipe::Recipe r = recipe("bf16-true", 4, 8);
  r.activation_checkpointing = "all";
  r.given_keys = {"activation_checkpointing", "train.micro_batch_size"};
  const int64_t context = find_profile("rtx-4090", 0).context_bytes;
  const Fit found =
      fit(*llm, r, {samples(8, 256), 256}, find_profile("rtx-4090", context + 100 * kMiB));
  EXPECT_FALSE(found.best);
  ASSERT_TRUE(found.smallest);
  EXPECT_GT(found.smallest->prediction.peak_allocated, 100 * kMiB);
  const Fit enough =
      fit(*llm, r, {samples(8, 256), 256},
          find_profile("rtx-4090", context + found.smallest->prediction.peak_reserved));
  EXPECT_TRUE(enough.best) << found.smallest->options;
}

// The longest samples decide memory, the average ones time.
TEST_F(Fitting, TimeIsOfAnAverageStep) {
  const auto llm = model("smollm2-135m");
  data::SampleStore uneven = samples(7, 64);
  const std::vector<int32_t> ids(512, 1);
  uneven.append({.ids = ids, .labels = ids});
  const DeviceProfile device = find_profile("rtx-4090", 0);
  const recipe::Recipe r = recipe("bf16-true", 1, 1);
  const Candidate mixed = evaluate(*llm, r, {uneven, 512}, device);
  const Candidate longest = evaluate(*llm, r, {samples(8, 512), 512}, device);
  EXPECT_EQ(mixed.prediction.peak_allocated, longest.prediction.peak_allocated);
  // (7 * 64 + 512) / 8 = 120 tokens.
  EXPECT_DOUBLE_EQ(mixed.cost.tokens, 120);
  EXPECT_NEAR(mixed.cost.memory_seconds / longest.cost.memory_seconds, 120.0 / 512, 1e-6);
}

// A frozen weight has no gradient, which is a third of its products.
TEST_F(Fitting, AdaptersTakeTwoThirdsOfTheTime) {
  const auto llm = model("smollm2-135m");
  const DeviceProfile device = find_profile("rtx-4090", 0);
  recipe::Recipe r = recipe("bf16-true", 1, 1);
  const StepCost all = evaluate(*llm, r, {samples(1, 64), 64}, device).cost;
  r.lora.enabled = true;
  const StepCost adapters = evaluate(*llm, r, {samples(1, 64), 64}, device).cost;
  EXPECT_NEAR(adapters.products_seconds / all.products_seconds, 2.0 / 3, 0.02);
  EXPECT_LT(adapters.optimizer_seconds, all.optimizer_seconds / 20);
}

TEST_F(Fitting, WhatTheRecipeGivesStays) {
  recipe::Recipe r = recipe("bf16-true", 4, 8);
  r.activation_checkpointing = "every:2";
  r.given_keys = {"activation_checkpointing", "train.micro_batch_size", "optimizer_offload"};
  const Fit found =
      fit(*model("smollm2-135m"), r, {samples(8, 256), 256}, find_profile("rtx-4090", 0));
  ASSERT_TRUE(found.best);
  for (const Candidate& c : found.front) {
    EXPECT_EQ(c.recipe.activation_checkpointing, "every:2");
    EXPECT_EQ(c.recipe.train.micro_batch_size, 4);
    EXPECT_EQ(c.recipe.optimizer_offload, "none");
  }
}

}  // namespace
}  // namespace snug::plan
