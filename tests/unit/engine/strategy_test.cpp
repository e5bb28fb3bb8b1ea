// SPDX-License-Identifier: Apache-2.0
#include "engine/strategy.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace snug::engine {
namespace {

using Stage = exec::ShardingStage;

Strategy made(const std::string& strategy, int64_t num_ranks, int64_t ranks_per_node,
              const std::string& mesh = "") {
  recipe::Recipe recipe;
  recipe.strategy = strategy;
  recipe.mesh = mesh;
  return strategy_of(recipe, num_ranks, ranks_per_node);
}

// pp, dp, fsdp, ep, cp, tp.
Strategy expected(std::array<int, dist::kNumAxes> sizes, Stage stage) {
  return {.mesh = {.sizes = sizes}, .stage = stage};
}

TEST(Strategy, EachNameIsAMeshAndAStage) {
  EXPECT_EQ(made("ddp", 8, 4), expected({1, 8, 1, 1, 1, 1}, Stage::Replicate));
  EXPECT_EQ(made("zero1", 8, 4), expected({1, 1, 8, 1, 1, 1}, Stage::OptimizerStates));
  EXPECT_EQ(made("zero2", 8, 4), expected({1, 1, 8, 1, 1, 1}, Stage::Gradients));
  EXPECT_EQ(made("fsdp", 8, 4), expected({1, 1, 8, 1, 1, 1}, Stage::Weights));
  EXPECT_EQ(made("auto", 8, 4), made("fsdp", 8, 4));
  EXPECT_EQ(made("hybrid", 8, 4), expected({1, 2, 4, 1, 1, 1}, Stage::Weights));
}

TEST(Strategy, HybridOnOneMachineIsFsdpAndOnMachinesOfOneDdp) {
  EXPECT_EQ(made("hybrid", 4, 4), made("fsdp", 4, 4));
  EXPECT_EQ(made("hybrid", 4, 0), made("fsdp", 4, 4));
  EXPECT_EQ(made("hybrid", 4, 1), made("ddp", 4, 1));
  EXPECT_THROW(made("hybrid", 6, 4), UserError);
}

TEST(Strategy, OneProcessCutsNothing) {
  for (const char* name : {"auto", "ddp", "zero1", "zero2", "fsdp", "hybrid"})
    EXPECT_EQ(made(name, 1, 1), expected({1, 1, 1, 1, 1, 1}, Stage::Replicate)) << name;
}

TEST(Strategy, AMeshSaysWhereRanksGo) {
  EXPECT_EQ(made("auto", 16, 4, "tp=2,pp=2,dp=2,fsdp=2"),
            expected({2, 2, 2, 1, 1, 2}, Stage::Weights));
  EXPECT_EQ(made("zero2", 4, 4, "dp=2,fsdp=2"), expected({1, 2, 2, 1, 1, 1}, Stage::Gradients));
  EXPECT_EQ(made("auto", 4, 4, "dp=4"), made("ddp", 4, 4));
  EXPECT_THROW(made("auto", 8, 4, "dp=4"), UserError);
  EXPECT_THROW(made("auto", 8, 4, "sp=8"), UserError);
  EXPECT_EQ(made("zero1", 4, 4, "ep=2,fsdp=2"),
            expected({1, 1, 2, 2, 1, 1}, Stage::OptimizerStates));
  EXPECT_EQ(made("auto", 4, 4, "ep=4"), expected({1, 1, 1, 4, 1, 1}, Stage::Replicate));
}

}  // namespace
}  // namespace snug::engine
