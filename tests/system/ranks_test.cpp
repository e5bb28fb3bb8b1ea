// Runs of several processes: a rank that dies or hangs ends all of them soon, with one message and
// no orphans, and the run goes on as if it had never been stopped.
// SPDX-License-Identifier: Apache-2.0
#include "system/ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <map>
#include <random>

#include "base/program.h"
#include "support/programs.h"

namespace snug::tests {
namespace {

using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Ranks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_mpirun()) GTEST_SKIP() << "no mpirun here (Debian: openmpi-bin)";
  }

  Words words(int devices, const fs::path& out_dir, const Words& more = {}) const {
    Words all{"--devices", std::to_string(devices), "--train.micro_batch_size", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return finetune_words(rows_, out_dir, all);
  }

  const TempFolder folder_;
  const fs::path rows_ = write_rows(folder_ / "rows.jsonl", 320);
};

struct Kill {
  int size = 2;
  int signal = SIGKILL;
  double seconds = 0;  // from the signal to the end of the last process
};

class Kills : public Ranks {
 protected:
  // Kills random ranks of a run at random moments until it comes to its end, which must be the
  // same as if nothing had happened. Returns how often.
  int run_with_kills(int size, int most, const nlohmann::json& expected,
                     const std::string& expected_weights);
  std::optional<Kill> run_once(const Words& run_words, const fs::path& out, int size);
  void expect_clean_failure(const fs::path& out, const std::string& said, int exit_code,
                            const Rank& victim, int size) const;

  Words more_words() const {
    Words more{
        "--train.epochs", "6",    "--train.save_interval", "20", "--eval.interval",      "50",
        "--resume",       "auto", "--collective_timeout",  "4",  "--train.log_interval", "1000"};
    if (!mesh_.empty()) more.insert(more.end(), {"--mesh", mesh_});
    return more;
  }

  std::string mesh_;  // empty: the default of as many devices

  std::mt19937 random_{std::random_device{}()};
  std::vector<Kill> kills_;
};

void Kills::expect_clean_failure(const fs::path& out, const std::string& said, int exit_code,
                                 const Rank& victim, int size) const {
  EXPECT_EQ(exit_code, 1) << said;
  EXPECT_NE(said.find(fmt::format("rank {} of {}", victim.number, size)), said.npos) << said;
  EXPECT_EQ(count(said, "snug: "), 1U) << said;
  EXPECT_EQ(count(said, "--resume auto") + count(said, "no checkpoint"), 1U) << said;
  for (const char* noise : {"mpirun", "ORTE", "PMIX", "\n-----"})
    EXPECT_EQ(said.find(noise), said.npos) << said;
  const auto orphans = orphans_of(out);
  EXPECT_TRUE(orphans.empty()) << orphans.front();
  // Before rank 0 opens its record there is none.
  if (fs::exists(out / "run.json") && read_run(out)["outcome"] != "unfinished") {
    EXPECT_EQ(read_run(out)["outcome"], "error");
    EXPECT_NE(read_run(out)["reason"], "");
  }
}

// None when the run came to its end before.
std::optional<Kill> Kills::run_once(const Words& run_words, const fs::path& out, int size) {
  fs::remove_all(out / "logs");
  const fs::path log = folder_ / "log";
  const pid_t supervisor = start(run_words, log);
  std::vector<Rank> ranks;
  for (const auto begin = Clock::now(); ranks.size() < static_cast<size_t>(size);) {
    ranks = ranks_of(out, size);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (seconds_since(begin) > 60) {
      ADD_FAILURE() << "the ranks do not come up\n" << read_file(log);
      ::kill(supervisor, SIGKILL);
      finish(supervisor);
      return std::nullopt;
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 2500));
  ranks = ranks_of(out, size);
  const Rank victim = ranks[random_() % ranks.size()];
  Kill kill{.size = size, .signal = random_() % 3 == 0 ? SIGSTOP : SIGKILL};
  const bool was_there = victim.ending == "running" && ::kill(victim.process, kill.signal) == 0;
  const auto begin = Clock::now();
  const int exit_code = finish(supervisor);
  kill.seconds = seconds_since(begin);
  const std::string said = read_file(log);
  if (exit_code == 0) return std::nullopt;
  EXPECT_TRUE(was_there) << said;
  // A rank that is in its last breath when the signal comes may have ended well.
  expect_clean_failure(out, said, exit_code, victim, size);
  EXPECT_LT(kill.seconds, kill.signal == SIGKILL ? 20 : 25) << said;  // machines may be busy
  return kill;
}

int Kills::run_with_kills(int size, int most, const nlohmann::json& expected,
                          const std::string& expected_weights) {
  const fs::path out = folder_ / fmt::format("killed-{}", size);
  fs::remove_all(out);
  const Words run_words = words(size, out, more_words());
  int num_kills = 0;
  while (num_kills < most) {
    const auto kill = run_once(run_words, out, size);
    if (::testing::Test::HasFailure()) return num_kills;
    if (!kill) break;
    kills_.push_back(*kill);
    ++num_kills;
  }
  if (num_kills == most) {
    fs::remove_all(out / "logs");
    const Result result = run(run_words);
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
  const nlohmann::json resumed = read_run(out);
  EXPECT_EQ(resumed["outcome"], "ok");
  EXPECT_EQ(resumed["steps"].size(), expected["steps"].size());
  for (size_t i = 0; i < std::min(resumed["steps"].size(), expected["steps"].size()); ++i)
    EXPECT_EQ(resumed["steps"][i]["loss"], expected["steps"][i]["loss"]) << "step " << i + 1;
  EXPECT_EQ(read_file(out / "final/model.safetensors"), expected_weights);
  return num_kills;
}

// SNUG_KILL_ROUNDS=50 for a person who doubts.
TEST_F(Kills, AnyRankAtAnyMomentCostsNothing) {
  const char* rounds = std::getenv("SNUG_KILL_ROUNDS");
  const int wanted = rounds == nullptr ? 3 : std::atoi(rounds);
  std::map<int, std::pair<nlohmann::json, std::string>> whole;
  for (const int size : {2, 4}) {
    const fs::path out = folder_ / fmt::format("whole-{}", size);
    const Result result = run(words(size, out, more_words()));
    ASSERT_EQ(result.exit_code, 0) << result.output;
    whole[size] = {read_run(out), read_file(out / "final/model.safetensors")};
  }
  for (int size = 2; static_cast<int>(kills_.size()) < wanted && !HasFailure(); size = 6 - size)
    run_with_kills(size, wanted - static_cast<int>(kills_.size()), whole[size].first,
                   whole[size].second);
  for (const int signal : {SIGKILL, SIGSTOP}) {
    double sum = 0, longest = 0;
    int number = 0;
    for (const Kill& kill : kills_) {
      if (kill.signal != signal) continue;
      ++number;
      sum += kill.seconds;
      longest = std::max(longest, kill.seconds);
    }
    if (number > 0)
      std::printf("%s: %d times, from the signal to the end %.2f s on average, %.2f s at most\n",
                  signal == SIGKILL ? "SIGKILL" : "SIGSTOP", number, sum / number, longest);
  }
}

TEST_F(Kills, AStageOfAPipelineAtAnyMomentCostsNothing) {
  mesh_ = "pp=2";
  const fs::path out = folder_ / "whole";
  const Result result = run(words(2, out, more_words()));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  run_with_kills(2, 1, read_run(out), read_file(out / "final/model.safetensors"));
}

// What a person sees of several processes is what one would have shown.
TEST_F(Ranks, OneVoice) {
  const Result result = run(words(2, folder_ / "out", {"--train.max_steps", "3"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(count(result.output, "step 3 "), 1U) << result.output;
  EXPECT_EQ(count(result.output, "Model  "), 1U) << result.output;
  EXPECT_NE(read_file(folder_ / "out/logs/rank-0.log").find("step 3 "), std::string::npos);
  EXPECT_TRUE(fs::exists(folder_ / "out/logs/rank-1.log"));
  EXPECT_EQ(read_run(folder_ / "out")["world_size"], 2);
}

TEST_F(Ranks, CtrlCSavesAndCanGoOn) {
  const fs::path out = folder_ / "out";
  const Words more{"--train.epochs", "200", "--resume", "auto", "--train.log_interval", "1"};
  const pid_t child = start(words(2, out, more), folder_ / "log");
  while (!fs::exists(out / "metrics.csv") || read_file(out / "metrics.csv").size() < 400)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::kill(child, SIGINT);
  EXPECT_EQ(finish(child), 130);
  const std::string said = read_file(folder_ / "log");
  EXPECT_EQ(count(said, "stopped on request"), 1U) << said;
  EXPECT_TRUE(orphans_of(out).empty());
  EXPECT_EQ(read_run(out)["outcome"], "interrupted");
  EXPECT_EQ(read_run(out)["ranks"].size(), 2U);
  const size_t stopped_at = read_run(out)["steps"].size();
  const Result resumed = run(words(2, out,
                                   {"--train.max_steps", std::to_string(stopped_at + 2), "--resume",
                                    "auto", "--train.epochs", "200"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(read_run(out)["steps"].size(), stopped_at + 2);
  EXPECT_EQ(read_run(out)["ranks"].size(), 2U);
}

// What mpirun is told before its ranks are there would reach none of them.
TEST_F(Ranks, CtrlCWhileRanksStartEndsTheRun) {
  for (const int milliseconds : {100, 300, 700}) {
    const pid_t child =
        start(words(2, folder_ / "out", {"--train.epochs", "100000"}), folder_ / "log");
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    ::kill(child, SIGINT);
    EXPECT_EQ(finish(child), 130) << milliseconds;
    EXPECT_TRUE(orphans_of(folder_ / "out").empty());
  }
}

// Rank 0 writes the log, but not how another rank's end ended the run.
TEST_F(Ranks, TheLogSaysWhichRankWasKilled) {
  const fs::path out = folder_ / "out";
  const pid_t child =
      start(words(2, out, {"--train.epochs", "200", "--train.log_interval", "1"}), folder_ / "log");
  while (!fs::exists(out / "metrics.csv") || read_file(out / "metrics.csv").size() < 400)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::kill(ranks_of(out, 2)[1].process, SIGKILL);
  EXPECT_EQ(finish(child), 1);
  const std::string log = read_file(out / "log.txt");
  EXPECT_EQ(count(log, ", started on "), 1U) << log;
  EXPECT_EQ(count(log, "Plan     peak "), 1U) << log;
  EXPECT_NE(log.find("\nsnug: rank 1 of 2 "), log.npos) << log;
  EXPECT_TRUE(log.ends_with(" UTC  ended: error\n")) << log;
  EXPECT_NE(read_file(out / "report.html").find("rank 1 of 2 "), std::string::npos);
}

TEST_F(Ranks, OutOfMemoryKeepsItsExitCodeAndItsAdvice) {
  const Result result =
      run(words(2, folder_ / "out", {"--memory_budget", "600KiB", "--force", "--strategy", "ddp"}));
  EXPECT_EQ(result.exit_code, 3) << result.output;
  EXPECT_EQ(count(result.output, "snug: "), 1U) << result.output;
  EXPECT_NE(result.output.find("missing"), std::string::npos) << result.output;
  EXPECT_EQ(read_run(folder_ / "out")["outcome"], "oom");
}

TEST_F(Ranks, UserErrorsAreSaidOnce) {
  const Result result = run(words(2, folder_ / "out", {"--data.json_path", "/there/is/none"}));
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_EQ(count(result.output, "/there/is/none"), 1U) << result.output;
}

// Two commands under one mpirun, a rank each.
class TwoCommands : public Ranks {
 protected:
  std::string command(const Words& more, const std::string& program = SNUG_BINARY) const {
    return fmt::format("{} {}", program, fmt::join(words(2, folder_ / "out", more), " "));
  }
  static Result run_both(const std::string& first, const std::string& second) {
    return run_in_shell(
        fmt::format("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun "
                    "--oversubscribe -np 1 {} : -np 1 {}",
                    first, second));
  }
  static void expect_refusal(const Result& result, const std::string& reason) {
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_EQ(count(result.output, "snug: "), 1U) << result.output;
    EXPECT_NE(result.output.find(reason), std::string::npos) << result.output;
  }
};

TEST_F(TwoCommands, ThatMeanDifferentRunsSaySo) {
  expect_refusal(run_both(command({"--seed", "1"}), command({"--seed", "2"})),
                 "seed = 2 on rank 1, and 1 on rank 0");
}

TEST_F(TwoCommands, ThatExpectOtherNumbersOfRanksSaySo) {
  expect_refusal(run_both(command({}), command({"--devices", "1"})),
                 "devices = \"1\" on rank 1, and \"2\" on rank 0");
  expect_refusal(run_both(command({"--devices", "3"}), command({"--devices", "3"})),
                 "3 processes are needed, but mpirun started 2");
}

TEST_F(TwoCommands, OfTwoVersionsSaySo) {
  std::string program = read_file(SNUG_BINARY);
  const std::string own = kVersion, other = std::string(own.size(), '9');
  for (size_t at = program.find(own); at != program.npos; at = program.find(own, at))
    program.replace(at, own.size(), other);
  std::ofstream(folder_ / "snug", std::ios::binary) << program;
  fs::permissions(folder_ / "snug", fs::perms::owner_all);
  expect_refusal(run_both(command({}), command({}, folder_ / "snug")),
                 fmt::format("program = snug {} on rank 1, and snug {} on rank 0", other, own));
}

// The other one's has room. No shared memory between them: its file would be too long as well.
TEST_F(TwoCommands, OfWhichOneCannotWriteItsCheckpointLeaveNone) {
  const Words more{"--train.save_interval", "4", "--resume", "auto"};
  const Result result = run_both(
      fmt::format("env OMPI_MCA_btl=self,tcp {}", command(more)),
      fmt::format("env OMPI_MCA_btl=self,tcp sh -c \"trap '' XFSZ; ulimit -f 64; exec {}\"",
                  command(more)));
  expect_refusal(result, "rank 1: ");
  EXPECT_NE(result.output.find("File too large"), std::string::npos) << result.output;
  EXPECT_EQ(read_run(folder_ / "out")["outcome"], "error");
  EXPECT_FALSE(fs::exists(folder_ / "out/step-000004"));
  EXPECT_TRUE(orphans_of(folder_ / "out").empty());
  const Result again = run(words(2, folder_ / "out", more));
  EXPECT_EQ(again.exit_code, 0) << again.output;
  for (const auto& entry : fs::directory_iterator(folder_ / "out"))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << entry.path();
}

// A disk that fills up in the middle of a run: the run ends with a reason, and goes on later.
class SmallDisk : public Ranks {
 protected:
  void SetUp() override {
    Ranks::SetUp();
    if (IsSkipped()) return;
    fs::create_directories(disk_);
    if (::mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=1m") != 0)
      GTEST_SKIP() << "cannot mount a small disk here, which takes root";
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) ::umount2(disk_.c_str(), MNT_DETACH);
  }

  const fs::path disk_ = folder_ / "disk";
  bool mounted_ = false;
};

TEST_F(SmallDisk, ACheckpointThatDoesNotFitIsSaid) {
  const Result result = run(words(2, disk_ / "out", {"--train.save_interval", "1"}));
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find("No space left"), std::string::npos) << result.output;
  EXPECT_EQ(count(result.output, "snug: "), 1U) << result.output;
  EXPECT_TRUE(orphans_of(disk_).empty());
}

TEST_F(SmallDisk, LogsThatDoNotFitStopNothing) {
  // The logs' folder alone is on it, and full but for a few pages.
  const fs::path out = folder_ / "out";
  fs::create_directories(out);
  fs::create_directories(disk_ / "logs");
  fs::create_directory_symlink(disk_ / "logs", out / "logs");
  std::ofstream(disk_ / "ballast") << std::string((size_t{1} << 20) - (size_t{7} << 12), 'x');
  const Result result = run(words(2, out, {"--train.epochs", "8", "--train.log_interval", "1"}));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(read_run(out)["outcome"], "ok");
}

// Who started the ranks has taken the folder, and they do not refuse themselves.
TEST_F(Ranks, AFolderIsOneRunsAlone) {
  const fs::path out = folder_ / "out";
  const Words more{"--train.epochs", "200", "--train.save_interval", "2", "--resume", "auto"};
  const pid_t first = start(words(2, out, more), folder_ / "log");
  for (int attempt = 0; attempt < 600 && !fs::exists(out / "step-000002"); ++attempt)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (const int devices : {1, 2}) {
    const Result second = run(words(devices, out, more));
    EXPECT_EQ(second.exit_code, 2) << second.output;
    EXPECT_NE(second.output.find(fmt::format("(process {} on ", first)), std::string::npos)
        << second.output;
  }
  ::kill(first, SIGKILL);
  finish(first);
  EXPECT_TRUE(orphans_of(out).empty());
  EXPECT_EQ(run(words(2, out, {"--train.max_steps", "1", "--resume", "auto"})).exit_code, 0);
}

// Logs too: those of the run that is moved, and not those of a start that came to nothing.
TEST_F(Ranks, AnEarlierRunIsMovedWithItsLogs) {
  const fs::path out = folder_ / "out";
  ASSERT_EQ(run(words(2, out, {"--train.max_steps", "1"})).exit_code, 0);
  const std::string record = read_file(out / "logs/rank-1.json");
  EXPECT_EQ(run(words(2, out, {"--data.json_path", folder_ / "none.jsonl"})).exit_code, 2);
  EXPECT_TRUE(fs::exists(out / "final"));
  EXPECT_EQ(read_run(out)["outcome"], "ok") << "of the run that is there";
  const Result second = run(words(2, out, {"--train.max_steps", "1"}));
  ASSERT_EQ(second.exit_code, 0) << second.output;
  EXPECT_EQ(count(second.output, "Moved an earlier run's files to "), 1U) << second.output;
  EXPECT_EQ(read_file(out / "earlier/logs/rank-1.json"), record);
  EXPECT_TRUE(fs::exists(out / "earlier/final/model.safetensors"));
  EXPECT_TRUE(fs::exists(out / "final/model.safetensors"));
  EXPECT_TRUE(fs::exists(out / "logs/rank-1.json"));
}

TEST_F(Ranks, AHostThatIsNoneIsSaid) {
  const Result result =
      run(words(1, folder_ / "out", {"--hosts", "nosuchhost.invalid:1,b.invalid:1"}));
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find("nosuchhost.invalid"), std::string::npos) << result.output;
}

// Other ways of being started. Each helper script says why it cannot be used here.
class Started : public Ranks {
 protected:
  Result run_beside(const std::string& script, const std::string& before, const Words& run_words) {
    std::string command = fmt::format("{}/tests/system/{} {} sh -c '{} {}", SNUG_SOURCE_DIR, script,
                                      (folder_ / "beside").string(), before, SNUG_BINARY);
    for (const std::string& word : run_words) command += " " + word;
    return run_in_shell(command + "'");
  }
  // Waits for the first steps, or for the end.
  void kill_in_training(const fs::path& out, size_t rank) const {
    while (!fs::exists(folder_ / "over")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
      const auto ranks = ranks_of(out, 2);
      if (ranks.size() < 2 || !fs::exists(out / "metrics.csv")) continue;
      ::kill(ranks[rank].process, SIGKILL);
      return;
    }
  }
  nlohmann::json losses(const fs::path& out) const {
    nlohmann::json all = nlohmann::json::array();
    const nlohmann::json run = read_run(out);
    for (const auto& step : run["steps"]) all.push_back(step["loss"]);
    return all;
  }
};

TEST_F(Started, BySlurm) {
  const Words few{"--train.max_steps", "4"};
  const Result result =
      run_beside("slurm_here", "srun -n 2 --overcommit", words(2, folder_ / "slurm", few));
  if (result.exit_code == 77) GTEST_SKIP() << result.output;
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(count(result.output, "step 4 "), 1U) << result.output;
  ASSERT_EQ(run(words(2, folder_ / "mpirun", few)).exit_code, 0);
  EXPECT_EQ(losses(folder_ / "slurm"), losses(folder_ / "mpirun"));
}

TEST_F(Started, BySlurmAndOneDies) {
  const fs::path out = folder_ / "slurm";
  std::thread killer([&] { kill_in_training(out, 1); });
  const Result result =
      run_beside("slurm_here", "srun -n 2 --overcommit", words(2, out, {"--train.epochs", "500"}));
  std::ofstream(folder_ / "over") << "";
  killer.join();
  if (result.exit_code == 77) GTEST_SKIP() << result.output;
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_NE(result.output.find("rank 1 of 2"), std::string::npos) << result.output;
  EXPECT_TRUE(orphans_of(out).empty());
}

TEST_F(Started, OnTwoHosts) {
  const Words few{"--train.max_steps", "4", "--hosts", "$FIRST_HOST:1,$SECOND_HOST:1"};
  const Result result = run_beside("two_hosts_here", "", words(1, folder_ / "hosts", few));
  if (result.exit_code == 77) GTEST_SKIP() << result.output;
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(read_file(folder_ / "hosts/logs/rank-1.json").find("second-host"), std::string::npos);
  ASSERT_EQ(run(words(2, folder_ / "mpirun", {"--train.max_steps", "4"})).exit_code, 0);
  EXPECT_EQ(losses(folder_ / "hosts"), losses(folder_ / "mpirun"));
}

TEST_F(Started, OnTwoHostsAndOneDies) {
  const fs::path out = folder_ / "hosts";
  std::thread killer([&] { kill_in_training(out, 1); });
  const Result result = run_beside(
      "two_hosts_here", "",
      words(1, out, {"--train.epochs", "500", "--hosts", "$FIRST_HOST:1,$SECOND_HOST:1"}));
  std::ofstream(folder_ / "over") << "";
  killer.join();
  if (result.exit_code == 77) GTEST_SKIP() << result.output;
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_NE(result.output.find("rank 1 of 2 (second-host"), std::string::npos) << result.output;
  EXPECT_TRUE(orphans_of(out).empty());
}

// A person's time begins with the program that starts the others, however long that takes.
TEST_F(Ranks, TimeCountsFromTheProgramThatStartedThem) {
  const fs::path real = run_in_shell("command -v mpirun | tr -d '\\n'").output;
  const fs::path bin = folder_ / "bin";
  fs::create_directories(bin);
  test::write_script(bin / "mpirun", "sleep 1\nexec '" + real.string() + "' \"$@\"");
  const test::Environment path("PATH", bin.string() + ":" + std::getenv("PATH"));
  const Result result = run(words(2, folder_ / "out", {"--train.max_steps", "1"}));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_GE(read_run(folder_ / "out")["startup_s"]["stages"]["program"], 1);
}

}  // namespace
}  // namespace snug::tests
