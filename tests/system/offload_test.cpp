// Updates on the host as a user runs them: states on disk, updates one step late, and both killed
// and resumed.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;

TEST(Offload, StatesOnDiskTrainTheSameAndLeaveNothing) {
  const TempFolder folder, disk;
  const fs::path rows = write_rows(folder / "rows.jsonl", 160);
  const auto train = [&](const char* name, const std::string& place) {
    const Result result = run(finetune_words(rows, folder / name, {"--optimizer_offload", place}));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return read_run(folder / name);
  };
  const nlohmann::json in_memory = train("memory", "cpu");
  const nlohmann::json on_disk = train("disk", "disk:" + disk.path().string());
  EXPECT_EQ(losses(in_memory), losses(on_disk));
  EXPECT_EQ(read_file(folder / "memory/final/model.safetensors"),
            read_file(folder / "disk/final/model.safetensors"));
  EXPECT_TRUE(fs::is_empty(disk.path()));
  EXPECT_EQ(in_memory["memory"]["measured"]["on_disk"], 0);
  const int64_t bytes = on_disk["memory"]["measured"]["on_disk"];
  EXPECT_GE(bytes, 8 * on_disk["model"]["parameters"].get<int64_t>());
  EXPECT_EQ(on_disk["memory"]["predicted"]["on_disk"], bytes);
  EXPECT_EQ(on_disk["memory"]["phases"].back()["optimizer_host"], 0);
}

TEST(Offload, FrozenWeightsOnDiskTrainTheSameAndLeaveNothing) {
  const TempFolder folder, disk;
  const fs::path rows = write_rows(folder / "rows.jsonl", 160);
  const auto train = [&](const char* name, const std::string& place) {
    Words words = finetune_words(
        rows, folder / name,
        {"--optimizer_offload", "cpu", "--weight_streaming", "true", "--weight_offload", place});
    words.front() = "finetune_lora";
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return read_run(folder / name);
  };
  const nlohmann::json in_memory = train("memory", "none");
  const nlohmann::json on_disk = train("disk", "disk:" + disk.path().string());
  EXPECT_EQ(losses(in_memory), losses(on_disk));
  EXPECT_TRUE(fs::is_empty(disk.path()));
  const nlohmann::json& measured = on_disk["memory"]["measured"];
  const int64_t bytes = measured["on_disk"], model = on_disk["model"]["parameters"],
                trained = on_disk["model"]["trainable"];
  EXPECT_GE(bytes, 4 * (model - trained));
  EXPECT_EQ(on_disk["memory"]["predicted"]["on_disk"], bytes);
}

TEST(Offload, AFolderThatIsNotThereIsNamed) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 64);
  const Result result = run(
      finetune_words(rows, folder / "out", {"--optimizer_offload", "disk:/nowhere/to/be/found"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("disk:/nowhere/to/be/found: there is no such folder"),
            std::string::npos)
      << result.output;
}

// Killed at random moments and resumed, again and again, a run has the losses of one never killed,
// whatever was on its way at those moments; and its disk holds nothing.
TEST(Offload, KilledAndResumedEqualsNeverKilled) {
  const TempFolder folder, disk;
  const fs::path rows = write_rows(folder / "rows.jsonl", 320);
  const Words more{"--train.save_interval",
                   "3",
                   "--resume",
                   "auto",
                   "--train.epochs",
                   "2",
                   "--delayed_parameter_update",
                   "true",
                   "--optimizer_offload",
                   "disk:" + disk.path().string()};
  const Result whole = run(finetune_words(rows, folder / "whole", more));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const std::vector<double> expected = losses(read_run(folder / "whole"));
  int kills = 0;
  int code = 137;
  for (int attempt = 0; code != 0 && attempt < 40; ++attempt) {
    const pid_t child = start(finetune_words(rows, folder / "killed", more), folder / "log");
    std::this_thread::sleep_for(std::chrono::milliseconds(150 + 90 * attempt));
    ::kill(child, SIGKILL);
    code = finish(child);
    kills += code == 137 ? 1 : 0;
    EXPECT_TRUE(fs::is_empty(disk.path())) << "after attempt " << attempt;
  }
  ASSERT_EQ(code, 0) << read_file(folder / "log");
  EXPECT_GT(kills, 0);
  const nlohmann::json resumed = read_run(folder / "killed");
  for (const auto& step : resumed["steps"])
    EXPECT_EQ(step["loss"].get<double>(), expected.at(step["step"].get<size_t>() - 1))
        << "step " << step["step"];
  EXPECT_EQ(resumed["steps"].back()["step"], expected.size());
  EXPECT_EQ(read_file(folder / "killed/final/model.safetensors"),
            read_file(folder / "whole/final/model.safetensors"));
}

}  // namespace
}  // namespace snug::tests
