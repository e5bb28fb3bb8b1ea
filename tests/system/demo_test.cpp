// snug demo as a person runs it: without a network where the model is named, and what it says where
// there is none.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "support/programs.h"
#include "system/program.h"

namespace snug::tests {
namespace {

using test::Environment;

std::vector<std::string> demo_words(const fs::path& folder,
                                    const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"demo", tiny_checkpoint()};
  words.insert(words.end(), {"--model.config", tiny_checkpoint() + "/config.json"});
  words.insert(words.end(), {"--questions", "numbers", "--data_dir", (folder / "rows").string()});
  words.insert(words.end(), {"--out_dir", (folder / "out").string(), "--precision", "32-true"});
  words.insert(words.end(), {"--data.prompt_style", "plain", "--train.max_steps", "2"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Demo, TrainsANamedModelOnQuestionsOfItsOwn) {
  for (const bool lora : {false, true}) {
    const TempFolder folder;
    const Result result = run(demo_words(
        folder.path(), lora ? std::vector<std::string>{"--lora"} : std::vector<std::string>{}));
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const nlohmann::json record = read_run(folder / "out");
    EXPECT_EQ(record["steps"].size(), 2U) << "the person's option wins";
    EXPECT_EQ(record["recipe"]["optimizer"]["lr"], lora ? 0.002 : 0.0001);
    EXPECT_EQ(record["validation"].size(), 2U);
    EXPECT_NE(record["model"]["parameters"] == record["model"]["trainable"], lora);
    const std::string command = record["command"];
    EXPECT_TRUE(command.starts_with(lora ? "snug finetune_lora " : "snug finetune_full "))
        << command;
    for (const std::string& words :
         {std::string("Questions 2,100 about numbers in words"), "Command   " + command,
          "snug chat " + (folder / "out/final").string()})
      EXPECT_NE(result.output.find(words), std::string::npos) << words << " in:\n" << result.output;
  }
}

TEST(Demo, TrainsOnRightAndWrongAnswers) {
  const TempFolder folder;
  const Result result = run(demo_words(folder.path(), {"--lora", "--objective", "dpo"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json record = read_run(folder / "out");
  EXPECT_EQ(record["recipe"]["objective"]["name"], "dpo");
  EXPECT_TRUE(record["validation"].back().contains("rewards_accuracy"));
  EXPECT_NE(result.output.find("with a wrong answer each"), result.output.npos) << result.output;
  std::istringstream rows(read_file(folder / "rows/train.jsonl"));
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    EXPECT_NE(row["chosen"], row["rejected"]);
    EXPECT_NE(row["rejected"], "");
  }
}

TEST(Demo, OnlyWritesTheQuestionsWhereNoMoreIsWanted) {
  const TempFolder folder;
  const Environment cache("SNUG_CACHE", (folder / "cache").string());
  const Result result = run(
      {"demo", "--data_only", "--questions", "numbers", "--data_dir", (folder / "rows").string()});
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TRUE(fs::exists(folder / "rows/train.jsonl"));
  EXPECT_TRUE(fs::exists(folder / "rows/held_out.jsonl"));
  EXPECT_FALSE(fs::exists(folder / "cache"));
}

TEST(Demo, AModelThatIsNotThereIsSaidBeforeQuestionsAreWritten) {
  const TempFolder folder;
  const Result result = run({"demo", (folder / "nowhere").string(), "--questions", "numbers",
                             "--data_dir", (folder / "rows").string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("nowhere does not exist"), std::string::npos) << result.output;
  EXPECT_FALSE(fs::exists(folder / "rows"));
}

TEST(Demo, AFaultIsSaidBeforeAnythingIsFetched) {
  const TempFolder folder;
  const Result result = run(demo_words(folder.path(), {"--train.micro_batch_size", "5"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("train.micro_batch_size"), std::string::npos) << result.output;
  EXPECT_FALSE(fs::exists(folder / "rows"));
}

TEST(Demo, WithoutANetworkSaysWhatToDo) {
  const TempFolder folder;
  const Environment cache("SNUG_CACHE", (folder / "cache").string());
  const Environment index("PIP_INDEX_URL", "http://127.0.0.1:1/simple");
  const Environment hub("HF_ENDPOINT", "http://127.0.0.1:1");
  const Environment proxy("NO_PROXY", "*");
  const Result result = run({"demo", "--questions", "numbers", "--data_dir",
                             (folder / "rows").string(), "--out_dir", (folder / "out").string()});
  EXPECT_EQ(result.exit_code, 2);
  for (const char* words :
       {"SmolLM2-135M-Instruct cannot be downloaded", "cannot be reached",
        "cache/models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf", "snug demo MODEL"})
    EXPECT_NE(result.output.find(words), std::string::npos) << words << " in:\n" << result.output;
  EXPECT_FALSE(fs::exists(folder / "out"));
}

}  // namespace
}  // namespace snug::tests
