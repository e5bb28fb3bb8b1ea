// What is suggested to somebody whose recipe does not fit: nothing that contradicts itself, nothing
// that saves nothing, and figures that are those of the limit in question.
// SPDX-License-Identifier: Apache-2.0
#include "plan/suggest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "models/family.h"
#include "plan/candidate.h"
#include "plan/changes.h"
#include "recipe/check.h"

namespace snug::plan {
namespace {

constexpr int64_t kLength = 110;

// Options of a row; a value belongs to its name.
std::set<std::string> options_of(const Suggestion& suggestion) {
  std::set<std::string> options;
  std::istringstream words(suggestion.options);
  std::string option;
  for (std::string word; words >> word;) {
    if (word.starts_with("--") && !option.empty()) options.insert(std::exchange(option, ""));
    option += (option.empty() ? "" : " ") + word;
  }
  options.insert(option);
  return options;
}

bool has(const Suggestion& suggestion, const std::string& text) {
  return suggestion.options.find(text) != std::string::npos;
}

class Suggest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_allocators(); }

  Suggest() {
    recipe_.precision = "32-true";
    recipe_.train.micro_batch_size = recipe_.train.global_batch_size = 4;
    const std::vector<int32_t> ids(kLength, 1);
    for (int i = 0; i < 8; ++i) samples_.append({.ids = ids, .labels = ids});
  }

  Prediction prediction(const recipe::Recipe& recipe) const {
    return evaluate(*model_, recipe, work(), cpu_).prediction;
  }
  // With so much of what the recipe takes.
  std::vector<Suggestion> suggest_within(double share) const {
    DeviceProfile device = cpu_;
    device.memory_bytes = device.context_bytes + part(prediction(recipe_).peak_allocated, share);
    return suggest(*model_, recipe_, work(), device);
  }
  static int64_t part(int64_t bytes, double share) {
    return static_cast<int64_t>(share * static_cast<double>(bytes));
  }
  Workload work() const { return {samples_, kLength}; }

  std::unique_ptr<models::Model> model_ = models::model_from_config(
      std::filesystem::path(SNUG_SOURCE_DIR) / "tests/data/system/tiny/config.json");
  const DeviceProfile cpu_ = find_profile("cpu", 0);
  recipe::Recipe recipe_;
  data::SampleStore samples_;
};

constexpr double kShares[] = {0.9, 0.8, 0.55, 0.4, 0.28, 0.23, 0.19, 0.17};

TEST_F(Suggest, NoRowContradictsItself) {
  int smaller = 0, optimizers = 0, in_backward = 0;
  for (const double share : kShares)
    for (const Suggestion& s : suggest_within(share)) {
      SCOPED_TRACE(s.options);
      const size_t optimizer = s.options.find("--optimizer ");
      if (optimizer != std::string::npos) {
        ++optimizers;
        EXPECT_EQ(s.options.find("--optimizer ", optimizer + 1), std::string::npos);
      }
      // Several micro-batches, over which gradients are summed.
      if (has(s, "--train.micro_batch_size")) {
        ++smaller;
        EXPECT_FALSE(has(s, "--optimizer_in_backward"));
      }
      in_backward += has(s, "--optimizer_in_backward") ? 1 : 0;
    }
  EXPECT_GT(smaller, 0);
  EXPECT_GT(optimizers, 0);
  EXPECT_GT(in_backward, 0);
}

TEST_F(Suggest, NoRowAsksForMoreThanAnotherAndSavesNothing) {
  size_t pairs = 0;
  for (const double share : kShares) {
    const std::vector<Suggestion> rows = suggest_within(share);
    for (const Suggestion& more : rows)
      for (const Suggestion& less : rows) {
        if (&more == &less) continue;
        EXPECT_NE(more.options, less.options);
        if (!std::ranges::includes(options_of(more), options_of(less))) continue;
        ++pairs;
        EXPECT_LT(more.peak_allocated, less.peak_allocated) << more.options << "\n" << less.options;
      }
  }
  EXPECT_GT(pairs, 0U);
}

TEST_F(Suggest, UpdatesInTheBackwardAreTakenBackWhereTheySaveNothing) {
  recipe_.train.micro_batch_size = 2;
  for (const double share : kShares)
    for (const Suggestion& s : suggest_within(share))
      EXPECT_FALSE(has(s, "--optimizer_in_backward")) << s.options;

  recipe_.train.micro_batch_size = 4;
  recipe_.optimizer_in_backward = true;
  for (const bool is_auto : {false, true}) {
    recipe_.optimizer_in_backward_is_auto = is_auto;
    int smaller = 0;
    for (const Suggestion& s : suggest_within(0.55)) {
      const bool is_smaller = has(s, "--train.micro_batch_size");
      smaller += is_smaller ? 1 : 0;
      EXPECT_EQ(has(s, "--optimizer_in_backward false"), is_smaller && !is_auto) << s.options;
    }
    EXPECT_GT(smaller, 0);
  }
}

TEST_F(Suggest, MicroBatchesDivideTheBatch) {
  recipe_.train.micro_batch_size = recipe_.train.global_batch_size = 5;
  int smaller = 0;
  for (const double share : kShares)
    for (const Suggestion& s : suggest_within(share)) {
      EXPECT_FALSE(has(s, "--train.micro_batch_size 2")) << s.options;
      smaller += has(s, "--train.micro_batch_size 1") ? 1 : 0;
    }
  EXPECT_GT(smaller, 0);
}

// Where nothing that keeps the training fits, what changes it is offered: shorter samples,
// bfloat16, adapters.
TEST_F(Suggest, WhatChangesTheTrainingIsOfferedLast) {
  std::set<std::string> offered;
  for (const double share : kShares) {
    bool changes = false;
    for (const Suggestion& s : suggest_within(share)) {
      SCOPED_TRACE(s.options);
      if (!s.fits) continue;
      EXPECT_TRUE(changes <= !s.same_training);
      changes |= !s.same_training;
      for (const char* option :
           {"--train.max_seq_length", "--precision bf16-true", "--lora_r 8", "--quantize bnb.nf4"})
        if (has(s, option)) {
          offered.insert(option);
          EXPECT_FALSE(s.same_training);
        }
      EXPECT_EQ(s.adds_adapters, has(s, "--lora_r 8"));
      EXPECT_GT(s.time_factor, 0);
    }
  }
  EXPECT_EQ(offered.size(), 4U);
}

TEST_F(Suggest, ASmallerMicroBatchComesBeforeOffloads) {
  const std::vector<Suggestion> rows = suggest_within(0.55);
  const auto smaller = std::ranges::find_if(
      rows, [](const Suggestion& s) { return s.options.starts_with("--train.micro_batch_size"); });
  const auto offloads =
      std::ranges::find_if(rows, [](const Suggestion& s) { return has(s, "offload"); });
  ASSERT_NE(smaller, rows.end());
  EXPECT_LT(smaller, offloads);
}

TEST_F(Suggest, WhereNothingFitsTheSmallestPlanIsNamed) {
  const std::vector<Suggestion> rows = suggest_within(0.001);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_FALSE(rows.front().fits);
  EXPECT_TRUE(has(rows.front(), "--quantize bnb.nf4")) << rows.front().options;
  EXPECT_GT(rows.front().needed_on_device, 0);
  EXPECT_LT(rows.front().needed_on_device, prediction(recipe_).peak_allocated / 2);
}

// On a cpu the device is a part of the host, so that offloading into it makes no room.
TEST_F(Suggest, AHostThatIsTooSmallIsGivenItsOwnFigure) {
  DeviceProfile device = cpu_;
  const Prediction whole = prediction(recipe_);
  device.host_bytes = part(whole.peak_allocated + whole.peak_host, 0.8);
  const std::vector<Suggestion> rows = suggest(*model_, recipe_, work(), device);
  ASSERT_FALSE(rows.empty());
  const Suggestion* smaller = nullptr;
  for (const Suggestion& s : rows) {
    EXPECT_GT(s.host_bytes, 0) << s.options;
    EXPECT_LE(s.host_bytes, device.host_bytes) << s.options;
    EXPECT_FALSE(has(s, "offload")) << s.options;
    if (s.options == "--train.micro_batch_size 2") smaller = &s;
  }
  ASSERT_NE(smaller, nullptr);
  recipe::Recipe recipe = recipe_;
  recipe.train.micro_batch_size = 2;
  const Prediction p = prediction(recipe);
  EXPECT_EQ(smaller->host_bytes, p.peak_allocated + p.peak_host);
  for (const Suggestion& s : suggest_within(0.55)) EXPECT_EQ(s.host_bytes, 0) << s.options;
}

// A technique that takes memory is taken back, and does not stand in the way of others.
TEST_F(Suggest, CastsThatAreKeptAreGivenUp) {
  recipe_.precision = "bf16-mixed";
  recipe_.cast_cache = true;
  int given_up = 0, narrow = 0;
  for (const double share : kShares)
    for (const Suggestion& s : suggest_within(share)) {
      const bool without = has(s, "--cast_cache false");
      given_up += without;
      narrow += has(s, "--precision bf16-true");
      EXPECT_TRUE(without || !(has(s, "--weight_streaming") || has(s, "--precision"))) << s.options;
    }
  EXPECT_GT(given_up, 0);
  EXPECT_GT(narrow, 0);
}

// What another optimizer does not take is set to what it is without, which a recipe may say.
TEST_F(Suggest, ArgumentsOfTheOptimizerBeforeAreTakenBack) {
  recipe_.optimizer.state_dtype = recipe::StateType::Float32;
  recipe_.given_keys = {"optimizer.state_dtype"};
  const auto change = std::ranges::find(changes(), "--optimizer adamw_8bit", &Change::options);
  ASSERT_NE(change, changes().end());
  const Changed to_8bit = changed(recipe_, {.changes = {&*change}, .micro_batch_size = 4});
  EXPECT_EQ(to_8bit.options,
            std::vector<std::string>{"--optimizer adamw_8bit --optimizer.state_dtype auto"});
  const auto refused = [](const recipe::Recipe& r) {
    return std::ranges::any_of(
        recipe::recipe_faults(recipe::Command::Plan, r),
        [](const std::string& fault) { return fault.starts_with("optimizer.state_dtype"); });
  };
  recipe_.optimizer.name = recipe::OptimizerName::AdamW8bit;
  EXPECT_TRUE(refused(recipe_));
  recipe_.optimizer.state_dtype = recipe::StateType::Auto;
  EXPECT_FALSE(refused(recipe_));
}

}  // namespace
}  // namespace snug::plan
