// --fit on several processes: whatever mesh it chooses trains within each one's budget.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "system/ranks.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;

class FitRanks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!has_mpirun()) GTEST_SKIP() << "no mpirun here (Debian: openmpi-bin)";
  }

  nlohmann::json train(const std::string& out, const Words& more) const {
    // Which samples meet in a step depends on the micro-batch: it is given, and so not chosen.
    Words words{"--devices", std::to_string(GetParam()), "--train.micro_batch_size", "1"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(finetune_words(rows_, folder_ / out, words));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return read_run(folder_ / out);
  }

  // With --fit and so much of what a run without it takes.
  nlohmann::json train_within(int percent, const Words& more) {
    if (free_.is_null()) free_ = train("free", {});
    if (testing::Test::HasFailure()) return {};
    const int64_t budget =
        free_["memory"]["measured"]["peak_allocated"].get<int64_t>() * percent / 100;
    Words words{"--fit", "--memory_budget", std::to_string(budget)};
    words.insert(words.end(), more.begin(), more.end());
    nlohmann::json fitted = train(fmt::format("within-{}", percent), words);
    if (!testing::Test::HasFailure()) expect_within(fitted, budget);
    return fitted;
  }

  void expect_within(const nlohmann::json& fitted, int64_t budget) const {
    EXPECT_EQ(fitted["outcome"], "ok");
    EXPECT_EQ(fitted["ranks"].size(), static_cast<size_t>(GetParam()));
    for (const auto& rank : fitted["ranks"]) {
      EXPECT_LE(rank["peak_allocated"].get<int64_t>(), budget) << fitted["mesh"];
      EXPECT_LE(rank["peak_allocated"], rank["predicted_allocated"]) << fitted["mesh"];
    }
    ASSERT_EQ(fitted["steps"].size(), free_["steps"].size());
    for (size_t i = 0; i < fitted["steps"].size(); ++i)
      EXPECT_NEAR(fitted["steps"][i]["loss"], free_["steps"][i]["loss"], 1e-4)
          << "step " << i + 1 << " on " << fitted["mesh"];
  }

  nlohmann::json free_;
  const TempFolder folder_;
  const fs::path rows_ = write_rows(folder_ / "rows.jsonl", 64);
};

TEST_P(FitRanks, TrainWithinTheBudgetAndLearnTheSame) {
  for (const int percent : {150, 70}) {
    const nlohmann::json fitted = train_within(percent, {});
    if (testing::Test::HasFailure()) return;
    EXPECT_FALSE(fitted["mesh"].get<std::string>().empty());
  }
}

// With all techniques of one device turned off no strategy over samples alone is small enough.
TEST_P(FitRanks, DivideTheModelWhereNothingElseFits) {
  const Words off{"--optimizer_in_backward",    "false", "--optimizer_offload",  "none",
                  "--activation_checkpointing", "none",  "--activation_offload", "false",
                  "--weight_streaming",         "false"};
  for (const int percent : {80, 70}) {
    const nlohmann::json fitted = train_within(percent, off);
    if (testing::Test::HasFailure()) return;
    const std::string mesh = fitted["mesh"];
    EXPECT_TRUE(mesh.find("tp=") != mesh.npos || mesh.find("pp=") != mesh.npos) << mesh;
  }
}

INSTANTIATE_TEST_SUITE_P(Processes, FitRanks, testing::Values(2, 4));

}  // namespace
}  // namespace snug::tests
