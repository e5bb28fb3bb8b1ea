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

}  // namespace
}  // namespace snug::tests
