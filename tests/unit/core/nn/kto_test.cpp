// The figures of KTO. Its loss and gradients are held to TRL's in tests/parity/kto_parity_test.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/nn/objectives/kto.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace snug::nn {
namespace {

// They are made of means over all answers: the rewards of the good and of the bad ones, the share
// of the good ones, the reference point.
TEST(KtoFigures, AreMeansOverTheAnswersOfTheirKind) {
  const std::vector<double> figures = Kto({}).figures_of({0.3, -0.2, 0.75, 1.5});
  ASSERT_EQ(figures.size(), Kto({}).figures().size());
  EXPECT_DOUBLE_EQ(figures[0], 0.4);
  EXPECT_DOUBLE_EQ(figures[1], -0.8);
  EXPECT_DOUBLE_EQ(figures[2], 1.2);
  EXPECT_DOUBLE_EQ(figures[3], 1.5);
}

// However the share of ten micro-batches of one kind adds up.
TEST(KtoFigures, AreNoNumbersOfAnswersThatThereAreNoneOf) {
  double share = 0;
  for (int i = 0; i < 10; ++i) share += 0.1;
  ASSERT_NE(share, 1);
  const std::vector<double> good = Kto({}).figures_of({0.3, 0, share, 0});
  EXPECT_NEAR(good[0], 0.3, 1e-12);
  EXPECT_TRUE(std::isnan(good[1]));
  EXPECT_TRUE(std::isnan(good[2]));
  const std::vector<double> bad = Kto({}).figures_of({0, 0.3, 0, 0});
  EXPECT_TRUE(std::isnan(bad[0]));
  EXPECT_DOUBLE_EQ(bad[1], 0.3);
}

}  // namespace
}  // namespace snug::nn
