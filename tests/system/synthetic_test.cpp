// Runs that need neither a checkpoint nor a tokenizer nor files of data.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;

std::string model(const std::string& family) {
  return std::string(SNUG_SOURCE_DIR) + "/tests/data/parity/" + family + "/config.json";
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// `training` is what a plan has no use for.
void expect_plan_is_met(const Words& recipe, const Words& training, const fs::path& out_dir) {
  const Result ran = run(
      joined(joined({"finetune_full"}, recipe), joined({"--out_dir", out_dir.string()}, training)));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  const Result planned =
      run(joined(joined({"plan"}, recipe), {"--device", "cpu", "--json", "true"}));
  ASSERT_EQ(planned.exit_code, 0) << planned.output;
  const nlohmann::json memory = read_run(out_dir)["memory"];
  const int64_t peak = nlohmann::json::parse(planned.output)["memory"]["peak_allocated"];
  EXPECT_EQ(memory["predicted"]["peak_allocated"], peak);
  EXPECT_EQ(memory["measured"]["peak_allocated"], peak);
}

TEST(SyntheticData, IsLearntFromRandomWeightsAlone) {
  const TempFolder folder;
  const Result result = run({"finetune_full",
                             "--model.config",
                             model("llama"),
                             "--data",
                             "Synthetic",
                             "--out_dir",
                             folder / "out",
                             "--precision",
                             "32-true",
                             "--train.max_seq_length",
                             "64",
                             "--train.max_steps",
                             "30",
                             "--train.lr_warmup_steps",
                             "2",
                             "--optimizer.lr",
                             "0.01",
                             "--num_threads",
                             "1",
                             "--data.val_split_fraction",
                             "0.1"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  for (const char* part : {"No sample answers", "without a tokenizer", "random samples"})
    EXPECT_NE(result.output.find(part), std::string::npos) << part << " in\n" << result.output;
  const nlohmann::json record = read_run(folder / "out");
  const double of_chance = std::log(96.0);  // the model's vocabulary
  EXPECT_GT(record["steps"].front()["loss"], 0.95 * of_chance);
  EXPECT_LT(record["steps"].back()["loss"], 0.5 * of_chance);
  EXPECT_LT(record["validation"].back()["loss"], 0.5 * of_chance);
  EXPECT_TRUE(fs::exists(folder / "out/final/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "out/final/config.json"));
}

TEST(SyntheticData, APlanOfTheSameWordsIsWhatARunTakes) {
  const TempFolder folder;
  const Words training = {"--train.max_steps",  "2", "--train.lr_warmup_steps", "0",
                          "--eval.num_samples", "0"};
  for (const char* family : {"llama", "t5", "gpt2"})
    expect_plan_is_met(
        {"--model.config", model(family), "--data", "Synthetic", "--train.max_seq_length", "24",
         "--train.micro_batch_size", "4", "--num_threads", "1"},
        training, folder / family);
  expect_plan_is_met(
      {"--model.config", std::string(SNUG_SOURCE_DIR) + "/recipes/models/tiny-blip2.json", "--data",
       "Synthetic", "--train.micro_batch_size", "4", "--precision", "bf16-true", "--num_threads",
       "1"},
      training, folder / "blip2");
}

TEST(SyntheticData, AdaptersAreWrittenWithoutATokenizer) {
  const TempFolder folder;
  const Result result =
      run({"finetune", "--model.config", model("llama"), "--data", "Synthetic", "--out_dir",
           folder / "out", "--train.max_seq_length", "16", "--train.max_steps", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TRUE(fs::exists(folder / "out/final/adapter_model.safetensors"));
}

// The other way round: weights and a tokenizer that are there stay together.
TEST(SyntheticData, ACheckpointKeepsItsTokenizer) {
  const TempFolder folder;
  ASSERT_EQ(run(finetune_words(write_rows(folder / "rows.jsonl", 16), folder / "out")).exit_code,
            0);
  const Result result =
      run({"finetune_full", folder / "out/final", "--data", "Synthetic", "--out_dir",
           folder / "more", "--train.max_seq_length", "16", "--train.max_steps", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TRUE(fs::exists(folder / "more/final/tokenizer.json"));
  const Result evaluated = run({"evaluate", folder / "more/final", "--data", "Synthetic", "--split",
                                "all", "--max_seq_length", "16"});
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
}

TEST(SyntheticData, IsRefusedWithFilesOfOthers) {
  const Result result = run({"finetune_full", "--model.config", model("llama"), "--data",
                             "Synthetic", "--data.json_path", "rows.jsonl"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("not to Synthetic"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace snug::tests
