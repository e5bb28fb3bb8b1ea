// Being killed costs nothing: what is trained, and what the run tells of itself, is as if it had
// never been.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "system/program.h"

namespace snug::tests {
namespace {

using Words = std::vector<std::string>;
using nlohmann::json;

// What a step did, without how long it took.
json deeds(const json& run) {
  json all = json::array();
  for (json step : run["steps"]) {
    step.erase("seconds");
    step.erase("utilization");
    all.push_back(step);
  }
  return all;
}

// The first cells of the training rows: step, loss, tokens.
std::vector<std::string> logged(const fs::path& csv) {
  std::vector<std::string> rows;
  std::istringstream lines(read_file(csv));
  for (std::string line; std::getline(lines, line);) {
    const size_t loss = line.find(',') + 1;
    const size_t end = line.find(',', line.find(',', loss) + 1);
    rows.push_back(line.substr(0, line[loss] == ',' ? line.npos : end));
  }
  return rows;
}

std::set<std::string> checkpoints(const fs::path& out_dir) {
  std::set<std::string> found;
  if (!fs::exists(out_dir)) return found;
  for (const auto& entry : fs::directory_iterator(out_dir)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-")) found.insert(name);
  }
  return found;
}

void expect_whole_checkpoints(const fs::path& out_dir) {
  for (const std::string& name : checkpoints(out_dir)) {
    const fs::path folder = out_dir / name;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_GT(fs::file_size(folder / file), 1000U) << folder;
    const json state = json::parse(read_file(folder / "state.json"));
    const json record = json::parse(read_file(folder / "run.json"));
    EXPECT_EQ(record["outcome"], "unfinished");
    EXPECT_EQ(record["steps"].size(), state["step"].get<size_t>());
  }
}

// Starts it and kills it at a random moment, later on average each time, until it comes to its end.
// Returns how often. The time allowed grows by 8 % each time, so that a busy machine ends it too.
template <class Check>
int run_with_kills(const Words& words, const fs::path& log, const Check& check) {
  static std::mt19937 random{std::random_device{}()};
  int kills = 0;
  double longest_seconds = 0.3;
  for (int attempt = 0; attempt < 100; ++attempt, longest_seconds *= 1.08) {
    const pid_t child = start(words, log);
    const double seconds = std::uniform_real_distribution(0.0, longest_seconds)(random);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    ::kill(child, SIGKILL);
    const int code = finish(child);
    check();
    if (code != 137) {
      EXPECT_EQ(code, 0) << read_file(log);
      return kills;
    }
    ++kills;
  }
  ADD_FAILURE() << "never came to its end";
  return kills;
}

// The run in `out`, killed so often, has the same story as the one in `whole`.
void expect_same_story(const fs::path& out, const fs::path& whole, int kills) {
  const json expected = read_run(whole);
  EXPECT_EQ(expected["resumptions"].size(), 0U);
  const json resumed = read_run(out);
  EXPECT_EQ(resumed["outcome"], "ok");
  EXPECT_EQ(deeds(resumed), deeds(expected));
  EXPECT_EQ(resumed["validation"], expected["validation"]);
  ASSERT_EQ(resumed["epochs"].size(), 2U);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(resumed["epochs"][i]["loss"], expected["epochs"][i]["loss"]);
  EXPECT_EQ(logged(out / "metrics.csv"), logged(whole / "metrics.csv"));
  EXPECT_EQ(resumed["memory"]["phases"].size(), expected["memory"]["phases"].size());
  // Kills before the first checkpoint began anew.
  EXPECT_LE(resumed["resumptions"].size(), static_cast<size_t>(kills));
  ASSERT_GT(resumed["resumptions"].size(), 0U);
  double before = 0;
  for (const json& resumption : resumed["resumptions"]) {
    EXPECT_GT(resumption["seconds_total"], before);
    before = resumption["seconds_total"];
  }
  EXPECT_GT(resumed["seconds_total"], before);
  // One log of all attempts since the last that began anew.
  const std::string log = read_file(out / "log.txt");
  size_t resumptions = 0;
  for (size_t at = log.find(", resumed at step "); at != log.npos;
       at = log.find(", resumed at step ", at + 1))
    ++resumptions;
  EXPECT_GE(resumptions, resumed["resumptions"].size()) << log;
  EXPECT_TRUE(log.ends_with(" UTC  ended: ok\n")) << log;
  EXPECT_EQ(read_file(out / "final/model.safetensors"),
            read_file(whole / "final/model.safetensors"));
}

// SNUG_KILL_ROUNDS=500 for a person who doubts: as many kills, over several runs.
TEST(Resume, KilledAgainAndAgainEqualsNeverKilled) {
  const char* rounds = std::getenv("SNUG_KILL_ROUNDS");
  const int wanted = rounds == nullptr ? 1 : std::atoi(rounds);
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 320);
  const Words more{"--train.save_interval", "3", "--resume",        "auto",
                   "--train.epochs",        "2", "--eval.interval", "7"};
  const Result whole = run(finetune_words(rows, folder / "whole", more));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const fs::path out = folder / "killed";
  for (int all = 0; all < wanted && !::testing::Test::HasFailure();) {
    fs::remove_all(out);
    const int kills = run_with_kills(finetune_words(rows, out, more), folder / "log",
                                     [&] { expect_whole_checkpoints(out); });
    ASSERT_GT(kills, 0);
    expect_same_story(out, folder / "whole", kills);
    all += kills;
    if (rounds != nullptr) fmt::print("{} kills\n", all);
  }
}

// Killed while it saves and deletes most of the time, it always has a whole checkpoint to go on
// from.
TEST(Resume, KeepsOnlyTheNewestCheckpointsAndNeverHalfOfOne) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 240);
  const fs::path out = folder / "out";
  const Words words = finetune_words(
      rows, out,
      {"--train.save_interval", "1", "--train.keep_checkpoints", "2", "--resume", "auto"});
  int64_t newest = 0;
  const int kills = run_with_kills(words, folder / "log", [&] {
    expect_whole_checkpoints(out);
    const std::set<std::string> found = checkpoints(out);
    EXPECT_LE(found.size(), 3U) << "a kill between saving and deleting leaves one more";
    if (found.empty()) return;
    const int64_t step = std::stoll(found.rbegin()->substr(5));
    EXPECT_GE(step, newest) << "the newest one is never deleted";
    newest = step;
  });
  EXPECT_GT(kills, 0);
  const json run = read_run(out);
  const size_t last = run["steps"].size();
  ASSERT_GE(last, 20U);
  EXPECT_EQ(checkpoints(out), (std::set<std::string>{fmt::format("step-{:06}", last - 1),
                                                     fmt::format("step-{:06}", last)}));
  for (const auto& entry : fs::directory_iterator(out))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << entry.path();
}

// A disk that damages the newest checkpoint: one of another size is passed over, and where bytes
// differ the message has the command that goes on.
TEST(Resume, OutlivesADamagedCheckpoint) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 80), out = folder / "out";
  const auto train = [&](const std::string& resume, const char* steps) {
    return run(finetune_words(
        rows, out, {"--train.save_interval", "2", "--train.max_steps", steps, "--resume", resume}));
  };
  ASSERT_EQ(train("false", "8").exit_code, 0);
  const std::vector<double> undisturbed = losses(read_run(out));
  const std::string whole = (out / "step-000004").string();
  {
    std::fstream file(out / "step-000006/optimizer.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('\x7f');
  }
  fs::resize_file(out / "step-000008/model.safetensors", 1000);
  const Result damaged = train("auto", "9");
  EXPECT_EQ(damaged.exit_code, 2) << damaged.output;
  for (const std::string& part :
       {std::string("step-000008 is incomplete (model.safetensors has 1000 bytes instead of"),
        std::string("step-000006/optimizer.safetensors"), std::string("is not as it was written"),
        "--resume " + whole + " goes on from the one before"})
    EXPECT_NE(damaged.output.find(part), std::string::npos) << part << "\n" << damaged.output;
  const Result resumed = train(whole, "8");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(losses(read_run(out)), undisturbed);
}

// A new run in an old one's folder is not taken for the old one when it is resumed.
TEST(Resume, NeverGoesOnWithAnEarlierRun) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 160);
  const auto train = [&](const Words& more) {
    const Result result = run(finetune_words(rows, folder / "out", more));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  };
  train({"--train.max_steps", "6", "--train.save_interval", "5"});
  train({"--train.max_steps", "2", "--train.save_last_state", "false", "--optimizer.lr", "0.001"});
  const std::string output =
      train({"--train.max_steps", "3", "--resume", "auto", "--optimizer.lr", "0.001"});
  EXPECT_EQ(output.find("Resume "), std::string::npos) << output;
  EXPECT_TRUE(fs::exists(folder / "out/earlier/step-000005/state.json"));
}

// A run that goes on in another folder has the whole story there, and leaves the first as it was.
TEST(Resume, InAnotherFolderTellsTheWholeStory) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 160);
  const auto train = [&](const fs::path& out, const Words& more) {
    Words all{"--train.save_interval", "2", "--train.log_interval", "1"};
    all.insert(all.end(), more.begin(), more.end());
    const Result result = run(finetune_words(rows, out, all));
    EXPECT_EQ(result.exit_code, 0) << result.output;
  };
  train(folder / "first", {"--train.max_steps", "5"});
  const std::string before = read_file(folder / "first/metrics.csv");
  train(folder / "second", {"--train.max_steps", "5", "--resume", folder / "first/step-000002"});
  EXPECT_EQ(logged(folder / "second/metrics.csv"), logged(folder / "first/metrics.csv"));
  EXPECT_EQ(read_file(folder / "first/metrics.csv"), before);
  EXPECT_EQ(read_run(folder / "second")["steps"].size(), 5U);
}

// What a run's steps have read.
std::vector<int64_t> tokens_of_steps(const Words& words, const fs::path& out) {
  const Result result = run(words);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  std::vector<int64_t> tokens;
  const json record = read_run(out);
  for (const json& step : record["steps"]) tokens.push_back(step["tokens"]);
  return tokens;
}

// Each sample of the first epoch once, although the longest ones come first.
TEST(Resume, WithAnotherMicroBatchReadsTheSamplesThatAreLeft) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 80);
  const auto tokens_of = [&](const fs::path& out, const Words& more) {
    return tokens_of_steps(finetune_words(rows, out, more), out);
  };
  const Words one{"--train.micro_batch_size", "1"};
  const std::vector<int64_t> undisturbed = tokens_of(folder / "whole", one);
  ASSERT_GT(undisturbed.size(), 5U);
  tokens_of(folder / "out", {"--train.micro_batch_size", "1", "--train.max_steps", "1",
                             "--train.save_interval", "1"});
  // Steps of another size would leave samples out.
  const Words other{"--train.global_batch_size", "16", "--resume", "true"};
  expect_part(run(finetune_words(rows, folder / "out", other)), 2,
              "was written with train.global_batch_size = 8, and now it is 16");
  EXPECT_EQ(tokens_of(folder / "out", {"--train.micro_batch_size", "8", "--resume", "true"}),
            undisturbed);
}

// An epoch of so many micro-batches has as many samples as it had when the run began.
TEST(Resume, WithAnotherMicroBatchHasTheEpochsOfTheFirst) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 80);
  const auto tokens_of = [&](const fs::path& out, const Words& more) {
    Words words{"--train.limit_train_batches", "16", "--train.epochs", "3"};
    words.insert(words.end(), more.begin(), more.end());
    return tokens_of_steps(finetune_words(rows, out, words), out);
  };
  const Words one{"--train.micro_batch_size", "1"};
  const std::vector<int64_t> undisturbed = tokens_of(folder / "whole", one);
  EXPECT_EQ(undisturbed.size(), 6U);
  tokens_of(folder / "out", {"--train.micro_batch_size", "1", "--train.max_steps", "1",
                             "--train.save_interval", "1"});
  EXPECT_EQ(tokens_of(folder / "out", {"--train.micro_batch_size", "4", "--resume", "true"}),
            undisturbed);
}

// snug finetune … | head; and a reader that stops for a while: the run waits for it.
TEST(Resume, ReadersMayGoAwayOrSleep) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 80);
  for (const char* reader : {"head -n 1", "(sleep 3; cat)"}) {
    std::string command = "snug";
    for (const std::string& word : finetune_words(
             rows, folder / "out",
             {"--train.epochs", "20", "--train.log_interval", "1", "--train.max_steps", "150"}))
      command += " '" + word + "'";
    EXPECT_EQ(run_in_shell(command + " 2>&1 | " + reader).exit_code, 0);
    const json record = read_run(folder / "out");
    EXPECT_EQ(record["outcome"], "ok") << reader;
    EXPECT_EQ(record["steps"].size(), 150U) << reader;
    EXPECT_TRUE(fs::exists(folder / "out/final")) << reader;
    fs::remove_all(folder / "out");
  }
}

// What another technique took of memory until then is not this run's.
TEST(Resume, WithAnotherPlanMeasuresMemoryAnew) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 160);
  const auto train = [&](const Words& more) {
    const Result result = run(finetune_words(rows, folder / "out", more));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return read_run(folder / "out")["memory"];
  };
  const json first = train({"--train.max_steps", "2", "--train.save_interval", "2"});
  const json second =
      train({"--train.max_steps", "4", "--resume", "true", "--optimizer_offload", "cpu"});
  EXPECT_LT(second["predicted"]["peak_allocated"], first["predicted"]["peak_allocated"]);
  EXPECT_LE(second["measured"]["peak_allocated"], second["predicted"]["peak_allocated"]);
  for (const json& phase : second["phases"])
    EXPECT_LE(phase["peak"], second["measured"]["peak_allocated"]) << phase;
}

// Going back to an older checkpoint starts another way from there: what was after it is set aside.
TEST(Resume, FromAnOlderCheckpointLeavesTheNewerOnesAside) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 160);
  const auto train = [&](const Words& more) {
    Words all{"--train.save_interval", "2", "--train.lr_warmup_steps", "1"};
    all.insert(all.end(), more.begin(), more.end());
    const Result result = run(finetune_words(rows, folder / "out", all));
    EXPECT_EQ(result.exit_code, 0) << result.output;
  };
  train({"--train.max_steps", "6"});
  train({"--train.max_steps", "3", "--resume", folder / "out/step-000002"});
  EXPECT_EQ(checkpoints(folder / "out"), (std::set<std::string>{"step-000002", "step-000003"}));
  EXPECT_TRUE(fs::exists(folder / "out/earlier/step-000006/state.json"));
  const json run = read_run(folder / "out");
  EXPECT_EQ(run["steps"].size(), 3U);
  EXPECT_EQ(run["resumptions"].size(), 1U);
  EXPECT_EQ(run["resumptions"][0]["step"], 2);
}

TEST(Resume, CtrlCSavesAndCanGoOn) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 320);
  const Words more{"--train.epochs", "200", "--resume", "auto"};
  const pid_t child = start(finetune_words(rows, folder / "out", more), folder / "log");
  while (!fs::exists(folder / "out/metrics.csv") ||
         read_file(folder / "out/metrics.csv").size() < 400)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::kill(child, SIGINT);
  EXPECT_EQ(finish(child), 130);
  EXPECT_NE(read_file(folder / "log").find("--resume auto"), std::string::npos);
  const json stopped = read_run(folder / "out");
  EXPECT_EQ(stopped["outcome"], "interrupted");
  const size_t stopped_at = stopped["steps"].size();
  const Words to_the_end{"--train.max_steps", std::to_string(stopped_at + 2),
                         "--resume",          "auto",
                         "--train.epochs",    "200"};
  const Result resumed = run(finetune_words(rows, folder / "out", to_the_end));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  const json whole = read_run(folder / "out");
  ASSERT_EQ(whole["steps"].size(), stopped_at + 2);
  for (size_t i = 0; i < whole["steps"].size(); ++i) EXPECT_EQ(whole["steps"][i]["step"], i + 1);
  EXPECT_EQ(whole["resumptions"].size(), 1U);
}

// A closed ssh session, Slurm's --signal and a limit of processor time, however often they come.
TEST(Resume, WarningsOfAnEndSaveAndNeverKill) {
  for (const int warning : {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    const TempFolder folder;
    const fs::path rows = write_rows(folder / "rows.jsonl", 320);
    const pid_t child =
        start(finetune_words(rows, folder / "out", {"--train.epochs", "200"}), folder / "log");
    while (!fs::exists(folder / "out/metrics.csv") ||
           read_file(folder / "out/metrics.csv").size() < 400)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int i = 0; i < 3; ++i) ::kill(child, warning);
    EXPECT_EQ(finish(child), 130) << warning;
    EXPECT_EQ(checkpoints(folder / "out").size(), 1U) << warning;
    EXPECT_EQ(read_run(folder / "out")["outcome"], "interrupted") << warning;
  }
}

TEST(Resume, AFinishedRunSaysSoAndStaysAsItIs) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 32);
  const Words words = finetune_words(rows, folder / "out", {"--resume", "auto"});
  ASSERT_EQ(run(words).exit_code, 0);
  const std::string before = read_file(folder / "out/run.json");
  const std::string report = read_file(folder / "out/report.html");
  fs::remove(folder / "out/report.html");  // as where the disk was full in the end
  const Result again = run(words);
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_NE(again.output.find("nothing is left to do"), std::string::npos) << again.output;
  EXPECT_EQ(read_file(folder / "out/run.json"), before);
  EXPECT_EQ(read_file(folder / "out/report.html"), report);
  EXPECT_FALSE(fs::exists(folder / "out/earlier"));
  EXPECT_NE(again.output.find("To train further"), std::string::npos) << again.output;
  // Another learning rate would count from here on, and no step is left.
  expect_part(
      run(finetune_words(rows, folder / "out", {"--resume", "auto", "--optimizer.lr", "0.002"})), 0,
      "nothing is left to train; to train anew: --resume false");
  EXPECT_FALSE(fs::exists(folder / "out/earlier"));
}

TEST(Resume, AFinishedRunThatKeptNoStateSaysSo) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 32);
  const Words words = finetune_words(rows, folder / "out",
                                     {"--resume", "auto", "--train.save_last_state", "false"});
  ASSERT_EQ(run(words).exit_code, 0);
  EXPECT_TRUE(checkpoints(folder / "out").empty());
  expect_part(run(words), 0, "it kept no checkpoint of its last step (--train.save_last_state)");
  // Nothing could go on, so what was meant to be another run is one.
  const Words other = finetune_words(
      rows, folder / "out",
      {"--resume", "auto", "--train.save_last_state", "false", "--optimizer.lr", "0.002"});
  ASSERT_EQ(run(other).exit_code, 0);
  EXPECT_TRUE(fs::exists(folder / "out/earlier"));
}

TEST(Resume, AFinishedRunThatChoseItsTechniquesSaysSo) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 32);
  const Words words = finetune_words(
      rows, folder / "out", {"--resume", "auto", "--fit", "--train.save_last_state", "false"});
  ASSERT_EQ(run(words).exit_code, 0);
  expect_part(run(words), 0, "nothing is left to do");
}

// Without any option: the end of a run keeps what going on needs.
TEST(Resume, AFinishedRunIsTrainedFurther) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 84);  // 4 are held out
  const auto words = [&](const char* out, const char* epochs) {
    return finetune_words(rows, folder / out,
                          {"--resume", "auto", "--train.epochs", epochs, "--train.lr_schedule",
                           "constant", "--train.lr_warmup_steps", "0"});
  };
  ASSERT_EQ(run(words("whole", "3")).exit_code, 0);
  ASSERT_EQ(run(words("out", "1")).exit_code, 0);
  EXPECT_EQ(checkpoints(folder / "out").size(), 1U);
  ASSERT_EQ(run(words("out", "3")).exit_code, 0);
  EXPECT_EQ(deeds(read_run(folder / "out")), deeds(read_run(folder / "whole")));
  EXPECT_TRUE(read_file(folder / "out/final/model.safetensors") ==
              read_file(folder / "whole/final/model.safetensors"));
}

// Only how a step is cut differs, and so the order in which its sums are rounded.
TEST(Resume, AnyMicroBatchHasTheSameSamplesInEachStep) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 83);
  const auto steps_of = [&](const std::string& size) {
    const fs::path out = folder / ("out" + size);
    EXPECT_EQ(run(finetune_words(rows, out,
                                 {"--train.micro_batch_size", size, "--train.epochs", "3",
                                  "--optimizer.lr", "0.0001"}))
                  .exit_code,
              0);
    return read_run(out)["steps"];
  };
  const json one = steps_of("1");
  for (const char* size : {"2", "4", "8"}) {
    const json steps = steps_of(size);
    ASSERT_EQ(steps.size(), one.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i]["tokens"], one[i]["tokens"]) << size << ", step " << i + 1;
      EXPECT_NEAR(steps[i]["loss"].get<double>(), one[i]["loss"].get<double>(), 1e-4)
          << size << ", step " << i + 1;
    }
  }
}

TEST(Resume, BehindTheEndSaysSo) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 320);
  const auto words = [&](const char* steps) {
    return finetune_words(
        rows, folder / "out",
        {"--resume", "auto", "--train.save_interval", "4", "--train.max_steps", steps});
  };
  ASSERT_EQ(run(words("4")).exit_code, 0);
  const Result shorter = run(words("2"));
  EXPECT_EQ(shorter.exit_code, 0) << shorter.output;
  EXPECT_NE(shorter.output.find("nothing is left to train"), std::string::npos) << shorter.output;
  EXPECT_EQ(read_run(folder / "out")["notes"].size(), 1U);
}

// Nothing can be saved then, but how the run ended is.
TEST(Resume, CtrlCBeforeTheFirstStepIsRecorded) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 20000);
  const pid_t child =
      start(finetune_words(rows, folder / "out", {"--train.epochs", "200"}), folder / "log");
  while (!fs::exists(folder / "out/log.txt"))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::kill(child, SIGINT);
  EXPECT_EQ(finish(child), 130);
  const std::string said = read_file(folder / "log");
  EXPECT_NE(said.find("stopped on request before the first step"), said.npos) << said;
  EXPECT_EQ(read_run(folder / "out")["outcome"], "interrupted");
  EXPECT_NE(read_file(folder / "out/log.txt").find("ended: interrupted"), said.npos);
}

// A run that is killed before its end leaves a record that says so.
TEST(Resume, AKilledRunLeavesARecord) {
  const TempFolder folder;
  const fs::path rows = write_rows(folder / "rows.jsonl", 320);
  const pid_t child = start(
      finetune_words(rows, folder / "out", {"--train.epochs", "200", "--train.save_interval", "2"}),
      folder / "log");
  while (!fs::exists(folder / "out/step-000002"))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::kill(child, SIGKILL);
  finish(child);
  EXPECT_EQ(read_run(folder / "out")["outcome"], "unfinished");
}

}  // namespace
}  // namespace snug::tests
