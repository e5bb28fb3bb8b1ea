// SPDX-License-Identifier: Apache-2.0
#include "train/records/loss_spike.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace snug::train {
namespace {

// Losses that fall from 4 to 2 with noise of 0.1.
std::vector<report::StepRecord> falling(int count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, 0.1);
  std::vector<report::StepRecord> steps(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    steps[i].step = i + 1;
    steps[i].loss = 2 + 2.0 * (count - i) / count + noise(random);
  }
  return steps;
}

std::optional<LossSpike> after(std::vector<report::StepRecord> steps, double loss) {
  steps.push_back({.step = static_cast<int64_t>(steps.size()) + 1, .loss = loss});
  return loss_spike(steps);
}

TEST(LossSpike, StandsOutFromTheStepsBefore) {
  const auto spike = after(falling(100), 6);
  ASSERT_TRUE(spike);
  EXPECT_EQ(spike->loss, 6);
  EXPECT_EQ(spike->steps, 32);
  EXPECT_NEAR(spike->usual, 2.3, 0.2);
  EXPECT_FALSE(after(falling(100), 2.6)) << "noise";
  EXPECT_FALSE(after(falling(100), 0.1)) << "below";
}

TEST(LossSpike, NoiseOfAHundredRunsIsNone) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    const auto steps = falling(120, seed);
    for (size_t n = 0; n <= steps.size(); ++n)
      EXPECT_FALSE(loss_spike({steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(n)}))
          << seed << " " << n;
  }
}

TEST(LossSpike, AnEarlierOneHidesNone) {
  auto steps = falling(200);
  steps[190].loss = 1000;
  steps[195].loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(after(steps, 6));
}

TEST(LossSpike, NeedsSomeStepsBefore) {
  EXPECT_FALSE(loss_spike({}));
  EXPECT_FALSE(after(falling(15), 100));
  EXPECT_TRUE(after(falling(16), 100));
  EXPECT_FALSE(after(falling(40), std::numeric_limits<double>::infinity()));
}

// A loss that is the same at every step deviates by nothing.
TEST(LossSpike, OfConstantLossesIsHalfMoreThanThey) {
  std::vector<report::StepRecord> steps(20);
  for (report::StepRecord& step : steps) step.loss = 2;
  EXPECT_FALSE(after(steps, 2.9));
  EXPECT_TRUE(after(steps, 3.1));
}

}  // namespace
}  // namespace snug::train
