// SPDX-License-Identifier: Apache-2.0
#include "train/records/best_validation.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/files.h"
#include "support/temp_folder.h"

namespace snug::train {
namespace {

using recipe::BestMetric;

TEST(BestValidation, IsTheLowestLossAndTheFirstOfEqualOnes) {
  report::BestRecord best;
  EXPECT_FALSE(is_best_yet(best, {.step = 0, .loss = 0.1}, BestMetric::Loss));
  EXPECT_EQ(best, report::BestRecord());
  EXPECT_TRUE(is_best_yet(best, {.step = 10, .loss = 2}, BestMetric::Loss));
  EXPECT_FALSE(is_best_yet(best, {.step = 20, .loss = 2}, BestMetric::Loss));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(is_best_yet(best, {.step = 30, .loss = nan}, BestMetric::Loss));
  EXPECT_EQ(best.later, 2);
  EXPECT_EQ(words_on(best), "validation loss 2.0000");
  EXPECT_TRUE(is_best_yet(best, {.step = 40, .loss = 1.5}, BestMetric::Loss));
  EXPECT_EQ(best, (report::BestRecord{.step = 40, .metric = "loss", .value = 1.5}));
}

TEST(BestValidation, IsTheHighestAccuracyOfEitherKind) {
  report::BestRecord best;
  const auto next = [&](int64_t step, const char* name, double value) {
    return is_best_yet(best, {.step = step, .loss = 1, .figures = {{name, value}}},
                       BestMetric::Accuracy);
  };
  EXPECT_TRUE(next(1, "accuracy", 0.5));
  EXPECT_FALSE(next(2, "accuracy", 0.25));
  EXPECT_TRUE(next(3, "rewards_accuracy", 0.75));
  EXPECT_FALSE(next(4, "kl", 0.9));  // has none
  EXPECT_EQ(best.later, 1);
  EXPECT_EQ(words_on(best), "validation accuracy 75.0 %");
}

TEST(BestValidation, BeginsAnewWithAnotherMetric) {
  report::BestRecord best{.step = 5, .metric = "accuracy", .value = 0.9, .later = 3};
  EXPECT_TRUE(is_best_yet(best, {.step = 6, .loss = 7}, BestMetric::Loss));
  EXPECT_EQ(best, (report::BestRecord{.step = 6, .metric = "loss", .value = 7}));
}

TEST(BestValidation, IsComparedByItsMetricAlone) {
  const report::BestRecord two{.step = 2, .metric = "loss", .value = 2},
      three{.step = 3, .metric = "loss", .value = 3},
      right{.step = 4, .metric = "accuracy", .value = 0.5}, none;
  EXPECT_TRUE(is_better(two, three));
  EXPECT_FALSE(is_better(three, two));
  EXPECT_FALSE(is_better(two, two));
  EXPECT_FALSE(is_better(two, right));
  EXPECT_TRUE(is_better(right, none));
  EXPECT_FALSE(is_better(none, none));
}

TEST(BestValidation, IsFoundBesideItsModel) {
  const test::TempFolder folder;
  EXPECT_EQ(read_best(folder.path()), std::nullopt);
  write_best(folder.path(), {.step = 40, .metric = "loss", .value = 1.5});
  const report::BestRecord forty{.step = 40, .metric = "loss", .value = 1.5};
  EXPECT_EQ(read_best(folder.path()), forty);
  write_file_atomically(folder.path() / "best.json", "[]");
  EXPECT_EQ(read_best(folder.path()), std::nullopt);
}

}  // namespace
}  // namespace snug::train
