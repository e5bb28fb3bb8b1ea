// The learning rate against transformers 5.23 (get_scheduler with 3 steps of warm-up, 12 in all).
// SPDX-License-Identifier: Apache-2.0
#include "core/optim/schedule.h"

#include <gtest/gtest.h>

#include <array>

namespace snug::optim {
namespace {

using Rates = std::array<double, 12>;

void expect_rates(Decay decay, const Rates& expected) {
  const Schedule schedule{
      .peak_lr = 2e-4, .min_lr = 0, .warmup_steps = 3, .total_steps = 12, .decay = decay};
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(schedule.lr_at(static_cast<int64_t>(step)), expected[step], 1e-13) << step;
}

TEST(Schedule, FallsAsInTransformers) {
  expect_rates(Decay::Cosine, {0, 6.666666667e-05, 0.0001333333333, 0.0002, 0.0001939692621,
                               0.0001766044443, 0.00015, 0.0001173648178, 8.263518223e-05, 5e-05,
                               2.339555569e-05, 6.030737921e-06});
  expect_rates(Decay::Linear, {0, 6.666666667e-05, 0.0001333333333, 0.0002, 0.0001777777778,
                               0.0001555555556, 0.0001333333333, 0.0001111111111, 8.888888889e-05,
                               6.666666667e-05, 4.444444444e-05, 2.222222222e-05});
  expect_rates(Decay::None, {0, 6.666666667e-05, 0.0001333333333, 0.0002, 0.0002, 0.0002, 0.0002,
                             0.0002, 0.0002, 0.0002, 0.0002, 0.0002});
}

TEST(Schedule, StopsAtTheFloor) {
  for (const Decay decay : {Decay::Cosine, Decay::Linear}) {
    const Schedule schedule{.peak_lr = 1, .min_lr = 0.25, .total_steps = 8, .decay = decay};
    EXPECT_DOUBLE_EQ(schedule.lr_at(4), 0.625);
    EXPECT_DOUBLE_EQ(schedule.lr_at(8), 0.25);
    EXPECT_DOUBLE_EQ(schedule.lr_at(9), 0.25);
  }
}

}  // namespace
}  // namespace snug::optim
