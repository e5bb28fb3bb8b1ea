// Which ranks differ, and in what.
// SPDX-License-Identifier: Apache-2.0
#include "core/dist/agreement.h"

#include <gtest/gtest.h>

namespace snug::dist {
namespace {

TEST(Disagreement, IsNoneWhereAllSayTheSame) {
  EXPECT_EQ(disagreement({"seed = 1\nlr = 2\n", "seed = 1\nlr = 2\n"}), "");
}

TEST(Disagreement, NamesRanksAndValues) {
  EXPECT_EQ(disagreement({"seed = 1\nlr = 2", "seed = 1\nlr = 3", "seed = 1", "lr = 3\nseed = 1"}),
            "lr = 3 on ranks 1, 3, and 2 on rank 0\nlr = nothing on rank 2, and 2 on rank 0");
}

TEST(Disagreement, IsNotEndless) {
  std::string one, other;
  for (int i = 0; i < 20; ++i) {
    one += "key" + std::to_string(i) + " = a\n";
    other += "key" + std::to_string(i) + " = b\n";
  }
  const std::string text = disagreement({one, other});
  EXPECT_NE(text.find("and 15 more"), std::string::npos) << text;
}

}  // namespace
}  // namespace snug::dist
