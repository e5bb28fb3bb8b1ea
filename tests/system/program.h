// Runs the program as a user does, and reads what it leaves behind.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "support/temp_folder.h"

namespace snug::tests {

namespace fs = std::filesystem;
using test::TempFolder;

struct Result {
  int exit_code = 0;   // 128 + signal when killed
  std::string output;  // standard output and error
};

// Starts `snug words…`; output goes to `log`.
inline pid_t start(const std::vector<std::string>& words, const fs::path& log,
                   const char* program = SNUG_BINARY) {
  std::fflush(nullptr);  // or the child writes out again what is in the buffers
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (std::freopen(log.c_str(), "w", stdout) == nullptr || ::dup2(1, 2) < 0) ::_exit(126);
  if (std::freopen("/dev/null", "r", stdin) == nullptr) ::_exit(126);
  std::vector<char*> argv{const_cast<char*>(program)};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(program, argv.data());
  ::_exit(127);
}

inline int finish(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

inline Result run(const std::vector<std::string>& words, const char* program = SNUG_BINARY) {
  const TempFolder folder;
  const fs::path log = folder / "log";
  Result result;
  result.exit_code = finish(start(words, log, program));
  result.output = read_file(log);
  return result;
}

// A command as it is pasted into a shell.
inline Result run_in_shell(const std::string& command) {
  const TempFolder folder;
  const fs::path log = folder / "log";
  const std::string path = fs::path(SNUG_BINARY).parent_path().string();
  const int status = std::system(
      ("PATH='" + path + ":'$PATH; {\n" + command + "\n} >'" + log.string() + "' 2>&1 </dev/null")
          .c_str());
  return {.exit_code = WEXITSTATUS(status), .output = read_file(log)};
}

inline nlohmann::json read_run(const fs::path& out_dir) {
  return nlohmann::json::parse(read_file(out_dir / "run.json"));
}

inline std::vector<double> losses(const nlohmann::json& run) {
  std::vector<double> values;
  for (const auto& step : run["steps"]) values.push_back(step["loss"]);
  return values;
}

inline std::string tiny_checkpoint() {
  return std::string(SNUG_SOURCE_DIR) + "/tests/data/system/tiny";
}

// Rows of a pattern that a small model can learn.
inline fs::path write_rows(const fs::path& path, int count) {
  std::ofstream out(path);
  for (int i = 0; i < count; ++i)
    out << nlohmann::json{{"instruction", "say " + std::to_string(i % 7)},
                          {"input", ""},
                          {"output", std::string(static_cast<size_t>(1 + i % 7), 'a' + i % 3)}}
               .dump()
        << "\n";
  return path;
}

inline void expect_part(const Result& result, int exit_code, const std::string& part) {
  EXPECT_EQ(result.exit_code, exit_code) << result.output;
  EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
}

// A fine-tuning run of a tiny model from random weights.
inline std::vector<std::string> finetune_words(const fs::path& rows, const fs::path& out_dir,
                                               const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"finetune_full",
                                 tiny_checkpoint(),
                                 "--model.config",
                                 tiny_checkpoint() + "/config.json",
                                 "--data",
                                 "JSON",
                                 "--data.json_path",
                                 rows.string(),
                                 "--data.prompt_style",
                                 "plain",
                                 "--out_dir",
                                 out_dir.string(),
                                 "--precision",
                                 "32-true",
                                 "--train.global_batch_size",
                                 "8",
                                 "--train.micro_batch_size",
                                 "4",
                                 "--train.epochs",
                                 "1",
                                 "--train.lr_warmup_steps",
                                 "2",
                                 "--eval.num_samples",
                                 "0",
                                 "--optimizer.lr",
                                 "0.003"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// What `snug evaluate` finds of a model on the rows that a run held out, a fourth of `rows`.
inline nlohmann::json evaluated(const fs::path& model, const fs::path& rows,
                                const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{
      "evaluate", model,         "--data",  rows,    "--data.val_split_fraction", "0.25", "--split",
      "val",      "--precision", "32-true", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const Result result = run(words);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  if (result.exit_code != 0) return {{"loss", -1.0}};
  return nlohmann::json::parse(result.output.substr(result.output.find('{')));
}

}  // namespace snug::tests
