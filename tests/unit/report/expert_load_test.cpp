// SPDX-License-Identifier: Apache-2.0
#include "report/expert_load.h"

#include <gtest/gtest.h>

#include <cmath>

namespace snug::report {
namespace {

// Two blocks of four experts around one without any.
const std::vector<double> kStep = {8, 0, 4, 4, 0, 0, 0, 0, 1, 1, 1, 1};

TEST(ExpertLoad, SharesAreMeansOverStepsThatCountAlike) {
  std::vector<ExpertRecord> blocks;
  add(blocks, kStep, 4);
  add(blocks, std::vector<double>{0, 300, 0, 100, 0, 0, 0, 0, 0, 0, 0, 7}, 4);
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[0].block, 0);
  EXPECT_EQ(blocks[1].block, 2);
  EXPECT_EQ(blocks[0].steps, 2);
  EXPECT_EQ(blocks[0].shares, (std::vector<double>{0.25, 0.375, 0.125, 0.25}));
  EXPECT_EQ(blocks[1].shares, (std::vector<double>{0.125, 0.125, 0.125, 0.625}));
}

TEST(ExpertLoad, TheBusiestOfAnyBlock) {
  EXPECT_EQ(busiest_over_mean(kStep, 4), 2);
  EXPECT_EQ(busiest_over_mean({}, 4), 0);
  EXPECT_EQ(busiest_over_mean({}, 0), 0);
}

TEST(ExpertLoad, TableHasALineForEachBlock) {
  std::vector<ExpertRecord> blocks;
  add(blocks, kStep, 4);
  const std::string table = expert_table(blocks);
  const double entropy = (0.5 * std::log(2) + 2 * 0.25 * std::log(4)) / std::log(4);
  EXPECT_EQ(entropy, 0.75);
  for (const char* part :
       {"2.00 × mean (expert 0)", "0.00 × mean (expert 1)", "0.750", "1.000", "█▁▅▅"})
    EXPECT_NE(table.find(part), std::string::npos) << part << " in\n" << table;
}

}  // namespace
}  // namespace snug::report
