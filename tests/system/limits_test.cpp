// What bounds a run from outside: the steps that its data have, and the host's memory.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "base/bytes.h"
#include "support/programs.h"
#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

class Limits : public ::testing::Test {
 protected:
  Words words(const char* command, const Words& more) const {
    Words all = finetune_words(rows_, folder_ / "out", more);
    all[0] = command;
    return all;
  }
  json record() const { return read_run(folder_ / "out"); }

  const TempFolder folder_;
  const fs::path rows_ = write_rows(folder_ / "rows.jsonl", 64);
};

TEST_F(Limits, StepsThatTheDataDoNotHaveAreSaid) {
  const Words many{"--train.epochs", "2", "--train.max_steps", "100"};
  const Result result = run(words("finetune_full", many));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const json run_record = record();
  ASSERT_EQ(run_record["notes"].size(), 1U);
  const std::string note = run_record["notes"][0];
  const std::string steps = std::to_string(run_record["steps"].size());
  for (const std::string& part : {std::string("train.max_steps = 100 is not reached: 2 epochs of "),
                                  " are " + steps + " steps"})
    EXPECT_NE(note.find(part), std::string::npos) << part << " in " << note;
  EXPECT_EQ(count(result.output, note), 2U) << "before the steps and in the summary";
  EXPECT_LT(result.output.find(note), result.output.find("Plan ")) << result.output;
  EXPECT_NE(read_file(folder_ / "out/report.html").find("is not reached"), std::string::npos);
  const Result plan = run(words("plan", many));
  EXPECT_EQ(count(plan.output, note), 1U) << plan.output;

  // As many epochs as it names are enough, and one fewer is not.
  const size_t at = note.find("--train.epochs ") + 15;
  const int enough = std::stoi(note.substr(at));
  for (const auto& [epochs, notes] : {std::pair{enough, 0U}, {enough - 1, 1U}}) {
    Words asked{"--train.epochs", std::to_string(epochs), "--train.max_steps", "100", "--json"};
    const json planned = json::parse(run(words("plan", asked)).output);
    EXPECT_EQ(planned["notes"].size(), notes) << epochs;
  }
}

// Steps whose gradients are no numbers are not taken; a few in a row end the run, and nothing that
// it could resume from is replaced.
TEST_F(Limits, WeightsThatAreNoNumbersEndTheRunAndLeaveTheCheckpoints) {
  const auto train = [&](const char* steps, const char* interval) {
    return run(
        words("finetune_full", {"--train.max_steps", steps, "--train.save_interval", interval,
                                "--train.keep_checkpoints", "1", "--resume", "auto"}));
  };
  ASSERT_EQ(train("2", "2").exit_code, 0);
  const fs::path file = folder_ / "out/step-000002/model.safetensors";
  std::string bytes = read_file(file);
  for (size_t at = bytes.size() - 4096; at < bytes.size(); at += 4)
    bytes.replace(at, 4, std::string("\x00\x00\xc0\x7f", 4));  // NaN
  std::ofstream(file) << bytes;
  fs::remove(file.parent_path() / "checksums.json");  // which would find it
  const Result ended = train("4", "1");
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_NE(ended.output.find("the last 2 steps were skipped"), std::string::npos) << ended.output;
  EXPECT_NE(record()["notes"].dump().find("the model is that of step 2"), std::string::npos);
  const Result result = train("6", "1");
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find("at step 3: the step is skipped, the weights stay as they were"),
            std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("at step 5, the last of 3 steps in a row: "), std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("the first numbers that are not finite are in the weight "),
            std::string::npos)
      << result.output;
  EXPECT_EQ(result.output.find("-nan"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find(" is the first trained weight that now holds NaN"),
            std::string::npos)
      << result.output;
  EXPECT_EQ(read_file(file), bytes);
  for (const char* later : {"out/step-000003", "out/step-000004", "out/step-000005"})
    EXPECT_FALSE(fs::exists(folder_ / later)) << later;
  EXPECT_EQ(record()["outcome"], "error");
}

// Weights that are suddenly large, as after a step too far: told once.
TEST_F(Limits, ALossThatStandsOutIsPointedOut) {
  const auto train = [&](const char* steps) {
    return run(
        words("finetune_full", {"--train.epochs", "100", "--train.max_steps", steps, "--resume",
                                "auto", "--train.save_interval", "20", "--optimizer.lr", "1e-4"}));
  };
  const Result calm = train("20");
  ASSERT_EQ(calm.exit_code, 0) << calm.output;
  EXPECT_EQ(calm.output.find("far above"), std::string::npos) << calm.output;
  const fs::path file = folder_ / "out/step-000020/model.safetensors";
  std::string bytes = read_file(file);
  for (size_t at = bytes.size() - 4096; at < bytes.size(); at += 8)
    bytes.replace(at, 8, std::string("\x00\x00\x7a\x44\x00\x00\x7a\xc4", 8));  // 1000, -1000
  std::ofstream(file) << bytes;
  fs::remove(file.parent_path() / "checksums.json");  // which would find it
  const Result result = train("23");
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const size_t told = result.output.find("the loss of step 21 is ");
  ASSERT_NE(told, std::string::npos) << result.output;
  EXPECT_NE(result.output.find("usual in the 20 steps before", told), std::string::npos);
  EXPECT_EQ(result.output.find("far above", result.output.find("far above") + 1), std::string::npos)
      << result.output;
}

TEST_F(Limits, NothingIsSaidOfStepsThatAreReached) {
  const Result result = run(words("finetune_full", {"--train.max_steps", "2"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(record()["steps"].size(), 2U);
  EXPECT_TRUE(record()["notes"].empty());
  EXPECT_EQ(result.output.find("is not reached"), std::string::npos) << result.output;
}

TEST_F(Limits, TokensThatEndARunBeforeItsStepsAreSaid) {
  const Result result =
      run(words("finetune_full", {"--train.max_steps", "6", "--train.max_tokens", "20"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_LT(record()["steps"].size(), 6U);
  ASSERT_EQ(record()["notes"].size(), 1U);
  EXPECT_NE(result.output.find("train.max_tokens = 20"), std::string::npos) << result.output;
}

// The host has what is offloaded; on a CPU what the device holds too, since both are one memory.
TEST_F(Limits, ARunKeepsToTheHostMemoryThatIsSaid) {
  const Words offload{"--optimizer_offload", "cpu", "--train.max_steps", "1"};
  const auto with = [&](int64_t host, const Words& more) {
    Words all = offload;
    all.insert(all.end(), {"--host_memory", std::to_string(host)});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const json plan = json::parse(run(words("plan", with(int64_t{1} << 40, {"--json"}))).output);
  const json& memory = plan["memory"];
  ASSERT_GT(memory["offloaded_to_host"], 0);
  const int64_t needed =
      memory["offloaded_to_host"].get<int64_t>() + memory["peak_allocated"].get<int64_t>();

  const Result tight = run(words("finetune_full", with(needed - 1, {})));
  EXPECT_EQ(tight.exit_code, 3) << tight.output;
  EXPECT_NE(tight.output.find("exceeds the host_memory of"), std::string::npos) << tight.output;
  EXPECT_NE(tight.output.find("What would fit"), std::string::npos) << tight.output;
  EXPECT_EQ(record()["outcome"], "oom");
  const json refusal = record()["out_of_memory"];
  EXPECT_EQ(refusal["phase"], "plan");
  EXPECT_EQ(refusal["missing"], 1);
  int64_t categories = 0;
  for (const auto& [name, bytes] : refusal["by_category"].items())
    categories += bytes.get<int64_t>();
  EXPECT_EQ(refusal["allocated"], needed);
  EXPECT_LE(categories, needed) << "two peaks, which need not be at one moment";
  EXPECT_TRUE(record()["steps"].empty());

  // Each row has the figure that is held to the limit.
  ASSERT_FALSE(refusal["suggestions"].empty());
  for (const json& suggestion : refusal["suggestions"]) {
    Words more{"--json"};
    std::istringstream options(suggestion["options"].get<std::string>());
    for (std::string word; options >> word;) more.push_back(word);
    const json fitting =
        json::parse(run(words("plan", with(int64_t{1} << 40, more))).output)["memory"];
    const int64_t takes =
        fitting["offloaded_to_host"].get<int64_t>() + fitting["peak_allocated"].get<int64_t>();
    EXPECT_LT(takes, needed) << suggestion["options"];
    const size_t row = tight.output.find("  " + suggestion["options"].get<std::string>() + " ");
    ASSERT_NE(row, std::string::npos) << tight.output;
    const std::string line = tight.output.substr(row, tight.output.find('\n', row) - row);
    EXPECT_TRUE(std::regex_search(line, std::regex("host memory +" + format_bytes(takes) + " ")))
        << line << " has not " << format_bytes(takes);
  }

  EXPECT_EQ(run(words("finetune_full", with(needed, {}))).exit_code, 0);
  EXPECT_EQ(run(words("finetune_full", with(needed - 1, {"--force"}))).exit_code, 0);
  const Result planned = run(words("plan", with(needed - 1, {})));
  EXPECT_EQ(planned.exit_code, 3) << planned.output;
  EXPECT_NE(planned.output.find("fits the device"), std::string::npos) << planned.output;
  EXPECT_NE(planned.output.find("of host memory"), std::string::npos) << planned.output;
}

// The model is written by then, so a run that has no memory for its sample answers has not failed.
TEST_F(Limits, AnswersThatTakeMoreThanTrainingAreLeftOut) {
  json config = json::parse(read_file(tiny_checkpoint() + "/config.json"));
  config["max_position_embeddings"] = 30000;
  write_file_atomically(folder_ / "config.json", config.dump());
  const Result result =
      run(words("finetune_full", {"--model.config", folder_ / "config.json", "--eval.num_samples",
                                  "1", "--eval.max_new_tokens", "20000", "--train.max_steps", "1",
                                  "--memory_budget", "4MiB"}));
  expect_part(result, 0, "no sample answers, for which no plan has memory");
  EXPECT_EQ(record()["outcome"], "ok");
}

// Twenty thousand steps of a third of a millisecond: what is written again and again, what the
// process holds and what a resume has to read do not grow with them.
TEST_F(Limits, LongRunsKeepTheirRecordAndTheirMemory) {
  // Two threads wait for each other longer than such a step takes.
  const Environment one_thread("OMP_NUM_THREADS", "1");
  struct Course {
    size_t record_bytes, entries;
    int64_t resident_bytes, open_files;
  };
  const auto train_to = [&](const char* steps) -> Course {
    std::istringstream options(
        "--train.global_batch_size 1 --train.micro_batch_size 1 --train.max_seq_length 8 "
        "--train.epochs 1000000 --train.save_interval 5000 --train.keep_checkpoints 1 "
        "--train.log_interval 1 --train.save_model false --eval.interval 1000000 --resume auto");
    Words more{"--train.max_steps", steps};
    for (std::string word; options >> word;) more.push_back(word);
    const pid_t child = start(words("finetune_full", more), folder_ / "log");
    Course course{};
    int status = 0;
    rusage usage{};
    while (::wait4(child, &status, WNOHANG, &usage) == 0) {
      std::error_code gone;
      int64_t files = 0;
      for (fs::directory_iterator i("/proc/" + std::to_string(child) + "/fd", gone), end;
           !gone && i != end; i.increment(gone))
        ++files;
      if (!gone) course.open_files = std::max(course.open_files, files);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(status, 0) << read_file(folder_ / "log");
    const json run_record = record();
    EXPECT_EQ(run_record["outcome"], "ok");
    EXPECT_EQ(run_record["steps"].back()["step"], std::stoi(steps));
    course.record_bytes = fs::file_size(folder_ / "out/run.json");
    course.entries = run_record["steps"].size();
    course.resident_bytes = usage.ru_maxrss * kKiB;
    return course;
  };
  const Course early = train_to("10000"), late = train_to("20000");
  for (const Course& course : {early, late}) {
    EXPECT_LE(course.entries, 8192U);  // report/thinning.h
    EXPECT_GE(course.entries, 4096U);
  }
  EXPECT_LE(late.record_bytes, early.record_bytes * 3 / 2) << early.record_bytes;
  EXPECT_LE(late.resident_bytes, early.resident_bytes * 6 / 5) << early.resident_bytes;
  EXPECT_LE(late.open_files, early.open_files + 1);
  // A line each all the same, below their names; the last validation has one too.
  const std::string metrics = read_file(folder_ / "out/metrics.csv");
  EXPECT_EQ(std::ranges::count(metrics, '\n'), 20002);
}

}  // namespace
}  // namespace snug::tests
