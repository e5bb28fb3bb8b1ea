// SPDX-License-Identifier: Apache-2.0
#include "recipe/differences.h"

#include "support.h"

namespace snug::recipe {
namespace {

TEST(Differences, MakeOneRecipeTheOther) {
  const Recipe from;
  Recipe to;
  to.strategy = "zero2";
  to.activation_checkpointing = "all";
  to.weight_streaming = true;
  to.optimizer_offload = "disk:/mnt/a folder";
  to.train.micro_batch_size = 3;
  to.train.max_steps = 7;
  to.optimizer.lr = 2.5e-5;
  const auto values = differences(from, to);
  EXPECT_EQ(values.size(), 7U);
  EXPECT_EQ(values.at("strategy"), "zero2");
  Recipe other = from;
  apply_differences(other, values);
  EXPECT_TRUE(same_values(other, to));
  EXPECT_TRUE(differences(to, other).empty());
}

}  // namespace
}  // namespace snug::recipe
