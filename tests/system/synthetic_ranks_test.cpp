// A plan of `--data Synthetic` is what each of several ranks takes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <algorithm>

#include "system/ranks.h"

namespace snug::tests {
namespace {

TEST(SyntheticDataOfRanks, APlanOfTheSameWordsIsWhatTheyTake) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const TempFolder folder;
  for (const char* strategy : {"ddp", "fsdp"}) {
    const std::vector<std::string> recipe = {
        "--model.config", std::string(SNUG_SOURCE_DIR) + "/recipes/models/tiny-blip2.json",
        "--data",         "Synthetic",
        "--devices",      "2",
        "--strategy",     strategy,
        "--num_threads",  "1",
        "--precision",    "bf16-true"};
    std::vector<std::string> train = {"finetune_full",
                                      "--out_dir",
                                      folder / strategy,
                                      "--train.max_steps",
                                      "2",
                                      "--eval.num_samples",
                                      "0",
                                      "--train.lr_warmup_steps",
                                      "0"};
    train.insert(train.end(), recipe.begin(), recipe.end());
    const Result ran = run(train);
    ASSERT_EQ(ran.exit_code, 0) << ran.output;
    std::vector<std::string> plan = {"plan", "--device", "cpu", "--json", "true"};
    plan.insert(plan.end(), recipe.begin(), recipe.end());
    const Result planned = run(plan);
    ASSERT_EQ(planned.exit_code, 0) << planned.output;
    const int64_t peak = nlohmann::json::parse(planned.output)["memory"]["peak_allocated"];
    const nlohmann::json record = read_run(folder / strategy);
    int64_t most = 0;
    for (const nlohmann::json& rank : record["ranks"]) {
      EXPECT_EQ(rank["peak_allocated"], rank["predicted_allocated"]) << strategy;
      most = std::max(most, rank["peak_allocated"].get<int64_t>());
    }
    EXPECT_EQ(most, peak) << strategy;
    EXPECT_TRUE(fs::exists(folder / strategy / "final/model.safetensors"));
  }
}

// The model before training, computed by all of them for all.
void expect_same_on_all(const std::string& objective, const std::vector<std::string>& figures) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const TempFolder folder;
  std::vector<nlohmann::json> records;
  for (const std::string strategy : {"one", "ddp", "fsdp", "tp", "pp", "cp"}) {
    std::vector<std::string> train = {"finetune_full",
                                      "--model.config",
                                      tiny_checkpoint() + "/config.json",
                                      "--data",
                                      "Synthetic",
                                      "--train.max_seq_length",
                                      "24",
                                      "--out_dir",
                                      folder / strategy,
                                      "--objective",
                                      objective,
                                      "--num_threads",
                                      "1",
                                      "--precision",
                                      "32-true",
                                      "--lr",
                                      "0.01",
                                      "--train.max_steps",
                                      "3",
                                      "--data.val_split_fraction",
                                      "0.1",
                                      "--eval.num_samples",
                                      "0",
                                      "--train.lr_warmup_steps",
                                      "0",
                                      "--train.global_batch_size",
                                      "8",
                                      "--train.micro_batch_size",
                                      "4",
                                      "--data.max_samples",
                                      "32"};
    if (strategy != "one") train.insert(train.end(), {"--devices", "2"});
    if (strategy.size() > 2 && strategy != "one")
      train.insert(train.end(), {"--strategy", strategy});
    else if (strategy != "one")
      train.insert(train.end(), {"--mesh", strategy + "=2"});
    const Result ran = run(train);
    ASSERT_EQ(ran.exit_code, 0) << ran.output;
    records.push_back(read_run(folder / strategy));
  }
  for (const nlohmann::json& record : records) {
    ASSERT_EQ(record["steps"].size(), 3U);
    for (size_t i = 0; i < 3; ++i)
      for (const std::string& figure : figures) {
        const double expected = records[0]["steps"][i][figure];
        EXPECT_NEAR(record["steps"][i][figure].get<double>(), expected,
                    1e-4 * std::max(1e-2, std::abs(expected)))
            << figure << ", step " << i + 1;
      }
    const std::string& last = figures.back();
    EXPECT_NEAR(record["validation"].back()[last].get<double>(),
                records[0]["validation"].back()[last].get<double>(), 1e-4);
  }
}

TEST(SyntheticDataOfRanks, PairsTrainAsOnOne) {
  expect_same_on_all("dpo", {"loss", "rewards_chosen", "rewards_margin"});
}

// The reference point is one for all of them.
TEST(SyntheticDataOfRanks, RatingsTrainAsOnOne) {
  expect_same_on_all("kto", {"loss", "rewards_chosen", "rewards_rejected", "kl"});
}

// Ranks that share the vocabulary have some of the teacher's tokens each.
TEST(SyntheticDataOfRanks, WhatATeacherSaysTrainsAsOnOne) {
  expect_same_on_all("distill", {"loss", "sft_loss"});
}

}  // namespace
}  // namespace snug::tests
