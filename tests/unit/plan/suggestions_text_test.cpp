// What is said to somebody whose recipe does not fit: what would, and of nothing only that nothing
// does.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "plan/out_of_memory.h"

namespace snug::plan {
namespace {

bool advice_has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Suggestion kSmaller{.options = "--train.micro_batch_size 1",
                          .cost = "a little slower",
                          .peak_allocated = kGiB,
                          .time_factor = 1.2};
const Suggestion kAdapters{.options = "--lora_r 8",
                           .cost = "trains adapters",
                           .peak_allocated = kGiB,
                           .time_factor = 0.7,
                           .same_training = false,
                           .adds_adapters = true};
constexpr const char* kCommand = "snug finetune_full MODEL";

TEST(SuggestionsText, WhatChangesTheTrainingSaysSo) {
  const std::string text = suggestions_text({kSmaller, kAdapters}, kCommand);
  const size_t mark = text.find("These change the training result:");
  ASSERT_NE(mark, std::string::npos) << text;
  EXPECT_LT(text.find("--train.micro_batch_size 1"), mark) << text;
  EXPECT_GT(text.find("--lora_r 8"), mark) << text;
  EXPECT_TRUE(advice_has(text, "1.20x the time")) << text;
  EXPECT_TRUE(advice_has(text, "snug finetune_full MODEL --train.micro_batch_size 1")) << text;
}

TEST(SuggestionsText, AdaptersAreACommandOfTheirOwn) {
  EXPECT_TRUE(
      advice_has(suggestions_text({kAdapters}, kCommand), "snug finetune MODEL --lora_r 8"));
  EXPECT_EQ(suggestion_records({kAdapters}, kCommand).front().command,
            "snug finetune MODEL --lora_r 8");
}

TEST(SuggestionsText, WhereNothingFitsTheLeastIsSaid) {
  Suggestion smallest = kAdapters;
  smallest.fits = false;
  smallest.needed_on_device = 3 * kGiB;
  const std::string text = suggestions_text({smallest}, kCommand);
  EXPECT_TRUE(advice_has(text, "the smallest plan found takes 3.00 GiB, with --lora_r 8")) << text;
  EXPECT_FALSE(advice_has(text, "What would fit")) << text;
  EXPECT_TRUE(suggestion_records({smallest}, kCommand).empty());
}

}  // namespace
}  // namespace snug::plan
