// Processes that mpirun starts: what of them a person sees, and how they end when one fails.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/files.h"
#include "support/temp_folder.h"
#include "train/launch/layout.h"
#include "train/launch/rank_record.h"

namespace snug::launch {
namespace {

using std::chrono::milliseconds;
using test::TempFolder;
using Clock = std::chrono::steady_clock;

class Processes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("mpirun --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no mpirun here";
  }
  void TearDown() override {
    ::unsetenv("PROBE_TIMEOUT");
    ::unsetenv("PROBE_HOSTS");
  }

  pid_t start(std::vector<std::string> words, int output = -1) {
    words.insert(words.begin(), {SNUG_PROBE, out_.string()});
    const pid_t child = ::fork();
    if (child != 0) return child;
    const int file =
        output >= 0 ? output : ::open(said_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    ::dup2(file, 1);
    ::dup2(file, 2);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(SNUG_PROBE, argv.data());
    ::_exit(127);
  }

  int finish(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    said = read_file(said_);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  int run(std::vector<std::string> words) { return finish(start(std::move(words))); }

  bool says(const std::string& part) const { return said.find(part) != std::string::npos; }
  std::string log(int rank) const { return read_file(log_file(logs_folder(out_), rank)); }

  std::vector<RankRecord> wait_for_ranks(int count) const {
    const auto start = Clock::now();
    while (Clock::now() - start < std::chrono::seconds(30)) {
      std::vector<RankRecord> records;
      for (int rank = 0; rank < count; ++rank)
        if (auto record = read_any(rank)) records.push_back(*record);
      if (records.size() == static_cast<size_t>(count)) return records;
      std::this_thread::sleep_for(milliseconds(20));
    }
    ADD_FAILURE() << "the ranks did not come up";
    return {};
  }

  // No process that works on this test's folder is left.
  void expect_no_orphans() const {
    const auto start = Clock::now();
    while (num_processes() > 0 && Clock::now() - start < std::chrono::seconds(10))
      std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(num_processes(), 0);
  }

  std::string said;
  const TempFolder folder_;
  const std::filesystem::path out_ = folder_ / "out";
  const std::filesystem::path said_ = folder_ / "said";

 private:
  int num_processes() const {
    int found = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != name.npos) continue;
      try {
        const std::string command = read_file(entry.path() / "cmdline");
        found += command.find(out_.string()) != command.npos;
      } catch (const std::exception&) {  // it has just ended
      }
    }
    return found;
  }

  std::optional<RankRecord> read_any(int rank) const {
    try {
      const std::string text =
          read_file(logs_folder(out_) / ("rank-" + std::to_string(rank) + ".json"));
      const size_t at = text.find("\"job\": \"") + 8;
      return read_record(logs_folder(out_), rank, text.substr(at, text.find('"', at) - at));
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }
};

TEST_F(Processes, RankZeroIsSeenAndAllAreLogged) {
  ::unsetenv("OMP_NUM_THREADS");  // it would say how many threads a rank has
  ASSERT_EQ(run({"3", "*:say:words", "0:print:figures", "2:say:hidden", "*:threads"}), 0) << said;
  EXPECT_EQ(said.substr(0, 6), "words\n");
  EXPECT_TRUE(says("figures\n"));
  EXPECT_FALSE(says("hidden"));
  EXPECT_FALSE(says("mpirun"));
  EXPECT_NE(log(0).find("figures"), std::string::npos);
  EXPECT_EQ(log(2).substr(0, 13), "words\nhidden\n");
  EXPECT_NE(log(1).find("threads 1"), std::string::npos) << log(1);
  expect_no_orphans();
}

TEST_F(Processes, AKilledRankEndsAllAndIsNamed) {
  const pid_t child = start({"4", "*:at:step 3", "*:beat:30000"});
  const auto ranks = wait_for_ranks(4);
  ASSERT_EQ(ranks.size(), 4U);
  std::this_thread::sleep_for(milliseconds(300));
  const auto begin = Clock::now();
  ::kill(static_cast<pid_t>(ranks[2].process), SIGKILL);
  EXPECT_EQ(finish(child), 1);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  for (const char* part : {"rank 2 of 4", "SIGKILL", "step 3", "rank-2.log", "checkpoint"})
    EXPECT_TRUE(says(part)) << part << " in\n" << said;
  EXPECT_EQ(said.find("snug: "), said.rfind("snug: ")) << "one message\n" << said;
  expect_no_orphans();
}

TEST_F(Processes, AKilledKeeperTakesItsRankAlong) {
  const pid_t child = start({"2", "*:beat:30000"});
  const auto ranks = wait_for_ranks(2);
  ASSERT_EQ(ranks.size(), 2U);
  ::kill(static_cast<pid_t>(ranks[0].keeper), SIGKILL);
  EXPECT_EQ(finish(child), 1);
  EXPECT_TRUE(says("rank 0 of 2") && says("supervises it")) << said;
  expect_no_orphans();
}

TEST_F(Processes, AKilledSupervisorTakesAllAlong) {
  const pid_t child = start({"2", "*:beat:30000"});
  ASSERT_EQ(wait_for_ranks(2).size(), 2U);
  ::kill(child, SIGKILL);
  EXPECT_EQ(finish(child), 128 + SIGKILL);
  expect_no_orphans();
}

TEST_F(Processes, ARankThatGivesNoSignOfLifeIsEnded) {
  ::setenv("PROBE_TIMEOUT", "2", 1);
  EXPECT_EQ(run({"2", "*:beat:200", "1:die:19", "*:beat:30000"}), 1);
  for (const char* part : {"rank 1 of 2", "SIGSTOP", "did not respond"})
    EXPECT_TRUE(says(part)) << part << " in\n" << said;
  expect_no_orphans();
}

TEST_F(Processes, ErrorsKeepTheirWordsAndTheirExitCodes) {
  EXPECT_EQ(run({"2", "*:beat:100", "1:out_of_memory:12 MiB missing", "*:beat:30000"}), 3);
  EXPECT_TRUE(says("rank 1 of 2") && says("12 MiB missing")) << said;
  EXPECT_EQ(run({"2", "*:beat:100", "*:user_error:no such data"}), 2);
  EXPECT_EQ(said, "snug: no such data\n");
  EXPECT_EQ(run({"2", "1:lost:rank 0 is gone", "0:user_error:bad row"}), 2);
  EXPECT_TRUE(says("rank 0 of 2") && says("bad row") && !says("is gone")) << said;
  EXPECT_EQ(run({"2", "1:say:its last words", "1:exit:5", "*:beat:30000"}), 1);
  EXPECT_TRUE(says("exit code 5") && says("its last words")) << said;
}

TEST_F(Processes, CtrlCIsPassedOnOnce) {
  const pid_t child = start({"2", "*:beat:30000"});
  ASSERT_EQ(wait_for_ranks(2).size(), 2U);
  std::this_thread::sleep_for(milliseconds(500));
  ::kill(child, SIGINT);
  EXPECT_EQ(finish(child), 130);
  EXPECT_EQ(said, "snug: stopped on request\n");
  expect_no_orphans();
}

// Rank 0 finds a terminal of the size of the person's, follows it, and the log stays plain.
TEST_F(Processes, ATerminalIsATerminalForRankZero) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(::grantpt(terminal) + ::unlockpt(terminal), 0);
  const int slave = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  winsize size{};
  size.ws_col = 97;
  size.ws_row = 30;
  ASSERT_EQ(::ioctl(slave, TIOCSWINSZ, &size), 0);
  const pid_t child = start({"2", "*:terminal", "*:draw:half", "*:draw:whole", "0:columns"}, slave);
  ::close(slave);
  std::string shown;
  char buffer[256];
  for (ssize_t got = 0; (got = ::read(terminal, buffer, sizeof buffer)) > 0;)
    shown.append(buffer, static_cast<size_t>(got));
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << shown;
  EXPECT_NE(shown.find("terminal: yes"), std::string::npos) << shown;
  EXPECT_NE(shown.find("\x1b[32mwhole"), std::string::npos) << shown;
  EXPECT_NE(shown.find("columns: 97"), std::string::npos) << shown;
  EXPECT_EQ(log(0), "terminal: yes\nwholecolumns: 97\n");
  EXPECT_NE(log(1).find("terminal: no"), std::string::npos);
}

TEST_F(Processes, AHostThatIsNoneIsSaid) {
  ::setenv("PROBE_HOSTS", "nosuchhost.invalid:1,nosuchhost2.invalid:1", 1);
  EXPECT_EQ(run({"-", "*:say:never"}), 2);
  EXPECT_TRUE(says("mpirun could not start 2 processes") && says("nosuchhost")) << said;
  EXPECT_FALSE(says("ORTE")) << said;
}

TEST_F(Processes, JoinsWhatMpirunStarted) {
  const std::string mpirun = std::string("mpirun ") +
                             (::geteuid() == 0 ? "--allow-run-as-root " : "") +
                             "--oversubscribe -np 2 " SNUG_PROBE " " + out_.string() + " - ";
  const auto shell = [&](const std::string& deeds) {
    const int status = std::system((mpirun + deeds + " >" + said_.string() + " 2>&1").c_str());
    said = read_file(said_);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(shell("'*:say:words' 1:say:hidden"), 0) << said;
  EXPECT_EQ(said, "words\n");
  EXPECT_NE(shell("'*:beat:300' 1:die:9 '*:beat:30000'"), 0);
  EXPECT_TRUE(says("rank 1 of 2") && says("SIGKILL")) << said;
  expect_no_orphans();
}

TEST_F(Processes, UnderTorchrunRankZeroStartsThem) {
  const std::string variables =
      "MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 ";
  const std::string probe = SNUG_PROBE " " + out_.string() + " - 0:say:words '*:beat:200' ";
  const auto both = [&](const std::string& deeds) {
    const std::string script = variables + "RANK=1 LOCAL_RANK=1 " + probe + deeds + " & p=$!; " +
                               variables + "RANK=0 LOCAL_RANK=0 " + probe + deeds +
                               "; a=$?; wait $p; b=$?; echo codes $a $b";
    EXPECT_EQ(std::system(("{ " + script + "; } >" + said_.string() + " 2>&1").c_str()), 0);
    said = read_file(said_);
  };
  both("");
  EXPECT_EQ(said, "words\ncodes 0 0\n");
  both("1:out_of_memory:no_more");
  EXPECT_TRUE(says("no_more") && says("codes 3 3")) << said;
}

}  // namespace
}  // namespace snug::launch
