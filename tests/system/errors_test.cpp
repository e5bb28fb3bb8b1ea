// Wrong input: one clear message, the exit code that belongs to it, nothing half-written.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;

// The message names `wanted`, no crash, exit code 2.
void expect_user_error(const Words& words, const std::string& wanted) {
  const Result result = run(words);
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find(wanted), std::string::npos) << wanted << " in\n" << result.output;
  EXPECT_EQ(result.output.find("internal error"), std::string::npos) << result.output;
}

class Errors : public ::testing::Test {
 protected:
  fs::path rows_with(const std::string& text) const {
    std::ofstream(folder_ / "bad.jsonl") << text;
    return folder_ / "bad.jsonl";
  }
  Words finetune(const Words& more) const {
    return finetune_words(folder_ / "rows.jsonl", folder_ / "out", more);
  }
  const TempFolder folder_;
  const fs::path rows_ = write_rows(folder_ / "rows.jsonl", 40);
};

TEST_F(Errors, UnknownOptionNamesTheNearest) {
  expect_user_error(finetune({"--train.micro_batch_sise", "4"}), "micro_batch_size");
}

TEST_F(Errors, UnknownCommand) { expect_user_error({"finetun"}, "finetune"); }

TEST_F(Errors, MissingCheckpoint) {
  expect_user_error({"generate", folder_ / "nothing", "--prompt", "a"}, "does not exist");
  expect_user_error({"finetune", "checkpoints/no/model", "--data.json_path", "a.json"},
                    "snug download no/model");
}

// A terminal would obey what a foreign file calls a name.
TEST_F(Errors, NamesInFilesAreNoCommandsToTheTerminal) {
  fs::create_directories(folder_ / "model");
  std::ofstream(folder_ / "model/config.json")
      << R"({"model_type": "x\u001b]0;title\u0007\u009b2J"})";
  const Result result = run({"generate", folder_ / "model", "--prompt", "a"});
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find("x ]0;title  2J"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find_first_of("\x1b\x07\xc2"), std::string::npos) << result.output;
}

// As on shared machines. The signal of such a limit would end the program without a word.
TEST_F(Errors, AFileThatMayNotGrowIsToldOf) {
  std::string command = "ulimit -f 20; exec snug";
  for (const std::string& word : finetune({"--train.max_steps", "2", "--train.save_interval", "1"}))
    command += " '" + word + "'";
  const Result result = run_in_shell(command);
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find("File too large"), std::string::npos) << result.output;
}

TEST_F(Errors, AConfigurationIsNoModel) {
  const std::string config = tiny_checkpoint() + "/config.json";
  expect_user_error({"generate", config, "--prompt", "a"}, "snug plan --model.config " + config);
}

TEST_F(Errors, FolderWithoutModel) {
  fs::create_directory(folder_ / "other");
  std::ofstream(folder_ / "other" / "notes.txt") << "none";
  expect_user_error({"generate", folder_ / "other", "--prompt", "a"}, "holds no model");
  fs::create_directories(folder_ / "checkpoints" / "ORG" / "NAME");
  const fs::path empty = folder_ / "checkpoints" / "ORG" / "NAME";
  expect_user_error({"generate", empty, "--prompt", "a"}, "snug download ORG/NAME");
  expect_user_error({"plan", empty}, "--model.config");
}

TEST_F(Errors, ARunsCheckpointIsNoModel) {
  fs::create_directories(folder_ / "run/step-000001");
  fs::create_directory(folder_ / "run/final");
  for (const char* name : {"state.json", "model.safetensors"})
    std::ofstream(folder_ / "run/step-000001" / name) << "{}";
  const std::string trained = "what the run trained is in " + (folder_ / "run/final").string();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"generate", folder_ / "run/step-000001", "--prompt", "a"},
        {"merge", folder_ / "run/step-000001"}})
    expect_user_error(words, "it is a checkpoint, from which --resume goes on; " + trained);
  expect_user_error({"merge", folder_ / "run"}, trained);
}

TEST_F(Errors, GgufThatIsNone) {
  std::ofstream(folder_ / "model.gguf") << "this is not a model";
  expect_user_error({"generate", folder_ / "model.gguf", "--prompt", "a"}, "model.gguf");
}

TEST_F(Errors, TruncatedWeights) {
  ASSERT_EQ(run(finetune({"--train.max_steps", "1"})).exit_code, 0);
  const fs::path weights = folder_ / "out/final/model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) / 2);
  expect_user_error({"generate", folder_ / "out/final", "--prompt", "a"}, "model.safetensors");
}

TEST_F(Errors, MissingTensorIsNamed) {
  ASSERT_EQ(run(finetune({"--train.max_steps", "1"})).exit_code, 0);
  const fs::path config = folder_ / "out/final/config.json";
  nlohmann::json json = nlohmann::json::parse(read_file(config));
  json["num_hidden_layers"] = 3;
  std::ofstream(config) << json.dump();
  expect_user_error({"generate", folder_ / "out/final", "--prompt", "a"}, "model.layers.2.");
}

TEST_F(Errors, DataWithoutRows) {
  expect_user_error(finetune_words(rows_with(""), folder_ / "out"), "bad.jsonl");
}

TEST_F(Errors, DataWithABrokenLine) {
  expect_user_error(
      finetune_words(rows_with("{\"instruction\":\"a\",\"output\":\"b\"}\n{\"instruc"),
                     folder_ / "out"),
      "bad.jsonl:2");
}

TEST_F(Errors, DataThatIsNotUtf8) {
  expect_user_error(finetune_words(rows_with("{\"instruction\":\"\xff\xfe\",\"output\":\"b\"}\n"),
                                   folder_ / "out"),
                    "bad.jsonl");
}

TEST_F(Errors, OutDirThatCannotBeMade) {
  expect_user_error(finetune_words(rows_, rows_ / "out"), "out_dir");
}

TEST_F(Errors, FullDiskLeavesNoHalfWrittenModel) {
  if (::geteuid() != 0 || run({"version"}).exit_code != 0) GTEST_SKIP() << "needs root to mount";
  const fs::path disk = folder_ / "disk";
  fs::create_directory(disk);
  const std::string mount = "mount -t tmpfs -o size=600k tmpfs " + disk.string() + " 2>/dev/null";
  if (std::system(mount.c_str()) != 0) GTEST_SKIP() << "tmpfs cannot be mounted here";
  const Result result = run(finetune_words(rows_, disk / "out", {"--train.save_interval", "2"}));
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find("No space left"), std::string::npos) << result.output;
  EXPECT_FALSE(fs::exists(disk / "out/final"));
  for (const auto& entry : fs::directory_iterator(disk / "out"))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << entry.path();
  EXPECT_EQ(std::system(("umount " + disk.string()).c_str()), 0);
}

TEST_F(Errors, ResumingWithOtherDataIsRefused) {
  ASSERT_EQ(run(finetune({"--train.save_interval", "2", "--train.max_steps", "2"})).exit_code, 0);
  const fs::path other = write_rows(folder_ / "other.jsonl", 50);
  expect_user_error(finetune_words(other, folder_ / "out", {"--resume", "auto"}), "other data");
}

TEST_F(Errors, ResumeWithoutCheckpoint) {
  expect_user_error(finetune({"--resume", "true"}), "no checkpoint");
}

TEST_F(Errors, ATokenizerOfAnotherModel) {
  const fs::path model = folder_ / "model";
  fs::create_directory(model);
  const fs::path data = fs::path(SNUG_SOURCE_DIR) / "tests/data";
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(data / "parity/llama" / file, model / file);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(data / "system/tiny" / file, model / file);
  expect_user_error({"generate", model, "--prompt", "hello"},
                    "the model's embedding has 96 rows: the tokenizer belongs");
}

TEST_F(Errors, NamesThatLeadNowhere) {
  expect_user_error({"lab", "compare", folder_ / "one", folder_ / "two"}, "one does not exist");
  expect_user_error({"convert", tiny_checkpoint(), folder_ / "model.safetensors"},
                    "a model in this format is a folder");
  EXPECT_FALSE(fs::exists(folder_ / "model.safetensors"));
}

TEST_F(Errors, DamagedCheckpointState) {
  ASSERT_EQ(run(finetune({"--train.save_interval", "2", "--train.max_steps", "2"})).exit_code, 0);
  const fs::path checkpoint = folder_ / "out/step-000002";
  std::ofstream(checkpoint / "state.json") << "{\"step\": 2";
  expect_user_error(finetune({"--resume", checkpoint}), "state.json");
  fs::remove(checkpoint / "checksums.json");
  expect_user_error(finetune({"--resume", "auto"}), "state.json");
}

// What could not be written is not success.
TEST_F(Errors, OutputThatIsCutIsAnError) {
  for (const char* words : {"--help", "version"}) {
    const Result full = run_in_shell(std::string("snug ") + words + " 2>&1 >/dev/full");
    expect_part(full, 2, "the output could not be written: No space left on device");
    expect_part(run_in_shell(std::string("snug ") + words + " >&-"), 2, "could not be written");
  }
}

}  // namespace
}  // namespace snug::tests
