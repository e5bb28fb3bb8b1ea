// However a row ends, the lab knows how, and nobody of it is left.
// SPDX-License-Identifier: Apache-2.0
#include "lab/run/row_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "base/files.h"
#include "lab/run/row_output.h"
#include "support/programs.h"
#include "support/temp_folder.h"

namespace snug::lab {
namespace {

namespace fs = std::filesystem;
using test::comes_true;
using test::is_running;
using test::read_process;

class RowProcess : public ::testing::Test {
 protected:
  ProcessEnd run(const std::string& script, ProcessWish wish = {}, std::string* text = nullptr) {
    const test::Environment program("SNUG_LAB_PROGRAM",
                                    test::write_script(folder_ / "program", script).string());
    if (wish.output.empty() && text == nullptr) wish.output = folder_ / "output.log";
    return run_process(wish, text);
  }
  std::string output() const { return read_file(folder_ / "output.log"); }

  test::TempFolder folder_;
};

TEST_F(RowProcess, HandsOverItsWordsAndKeepsItsOutput) {
  const ProcessEnd end =
      run("echo \"out: $1|$2\"; echo \"err: $#\" >&2; exit 7", {.words = {"plan", "two words"}});
  EXPECT_EQ(end.exit_code, 7);
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(end.survivors, 0);
  EXPECT_NE(output().find("out: plan|two words\n"), std::string::npos) << output();
  EXPECT_NE(output().find("err: 2\n"), std::string::npos) << output();
  EXPECT_EQ(end.last_words, "err: 2");
}

TEST_F(RowProcess, TextIsStandardOutputAlone) {
  std::string text;
  const ProcessEnd end = run("echo '{}'; echo 'warning: x' >&2", {}, &text);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(text, "{}\n");
  EXPECT_EQ(end.last_words, "warning: x");
}

TEST_F(RowProcess, TakesOutputThatNoPipeHolds) {
  std::string text;
  run("head -c 3000000 /dev/zero | tr '\\0' x", {}, &text);
  EXPECT_EQ(text.size(), 3000000U);
  EXPECT_EQ(text.find_first_not_of('x'), std::string::npos);
}

TEST_F(RowProcess, ReadsNothingOfThePersonsInput) {
  std::string text;
  EXPECT_EQ(run("wc -c", {}, &text).exit_code, 0);
  EXPECT_EQ(std::stoi(text), 0);
}

TEST_F(RowProcess, TellsSignalsFromExitCodes) {
  for (const int number : {SIGSEGV, SIGKILL, SIGABRT}) {
    const ProcessEnd end = run("ulimit -c 0; kill -" + std::to_string(number) + " $$");
    EXPECT_EQ(end.exit_code, -1);
    EXPECT_EQ(end.signal, number);
    EXPECT_FALSE(end.timed_out);
    EXPECT_FALSE(end.interrupted);
    EXPECT_FALSE(end.killed_by_kernel_for_memory);
  }
}

TEST_F(RowProcess, SaysWhatCannotBeStarted) {
  const test::Environment program("SNUG_LAB_PROGRAM", (folder_ / "none").string());
  const ProcessEnd end = run_process({.output = folder_ / "output.log"});
  EXPECT_EQ(end.exit_code, 127);
  EXPECT_NE(end.last_words.find("cannot start " + (folder_ / "none").string()), std::string::npos)
      << end.last_words;
}

TEST_F(RowProcess, OutputThatCannotBeMadeIsAnError) {
  EXPECT_THROW(run("exit 0", {.output = folder_ / "no" / "folder"}), UserError);
}

// A row must not stand still, or die, because nobody keeps its words.
TEST_F(RowProcess, AFullDiskForItsOutputDoesNotStopIt) {
  const ProcessEnd end = run("head -c 300000 /dev/zero; exit 4", {.output = "/dev/full"});
  EXPECT_EQ(end.exit_code, 4);
  EXPECT_NE(end.output_fault.find("No space left on device"), std::string::npos)
      << end.output_fault;
}

TEST_F(RowProcess, OutputWithoutAnEndIsCutAndTheRowTimesOut) {
  const ProcessEnd end = run("trap '' TERM; exec yes", {.timeout_seconds = 1});
  EXPECT_TRUE(end.timed_out);
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_LT(end.seconds, 30);
  EXPECT_LE(fs::file_size(folder_ / "output.log"), (uintmax_t{64} << 20) + 100);
}

TEST_F(RowProcess, EndsWhatHangsAndWhatItStarted) {
  const std::string file = (folder_ / "grandchild").string();
  const ProcessEnd end =
      run("setsid sh -c 'trap \"\" TERM; echo $$ >" + file + "; while :; do sleep 1; done' &\n" +
              "trap '' TERM; while :; do sleep 1; done",
          {.timeout_seconds = 1});
  EXPECT_TRUE(end.timed_out);
  EXPECT_FALSE(end.interrupted);
  EXPECT_EQ(end.signal, SIGKILL);  // it took no notice of SIGTERM
  EXPECT_FALSE(end.killed_by_kernel_for_memory);
  EXPECT_GE(end.seconds, 5);
  EXPECT_LT(end.seconds, 30);
  const pid_t grandchild = read_process(file);
  ASSERT_GT(grandchild, 0);
  EXPECT_TRUE(comes_true([&] { return !is_running(grandchild); }));
}

// In a session and a group of its own, with the row's pipes still open.
TEST_F(RowProcess, EndsWhoOutlivesIt) {
  const std::string file = (folder_ / "left").string();
  const ProcessEnd end = run("setsid sh -c 'echo $$ >" + file + "; exec sleep 1000' &\n" +
                             "while [ ! -s " + file + " ]; do sleep 0.05; done; exit 0");
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(end.survivors, 1);
  EXPECT_LT(end.seconds, 60);
  EXPECT_TRUE(comes_true([&] { return !is_running(read_process(file)); }));
}

TEST_F(RowProcess, EndsWithTheOneWhoWatches) {
  const std::string file = (folder_ / "row").string();
  const pid_t lab = ::fork();
  if (lab == 0) {
    run("echo $$ >" + file + "; exec sleep 1000");
    ::_exit(0);
  }
  const pid_t row = read_process(file);
  ASSERT_GT(row, 0);
  EXPECT_TRUE(is_running(row));
  ::kill(lab, SIGKILL);
  ::waitpid(lab, nullptr, 0);
  EXPECT_TRUE(comes_true([&] { return !is_running(row); }));
}

TEST_F(RowProcess, AWishToStopEndsIt) {
  const fs::path begun = folder_ / "begun";
  int ticks = 0;
  const ProcessEnd end = run("echo x >" + begun.string() + "; exec sleep 1000",
                             {.tick_seconds = 0.05,
                              .tick = [&] { ++ticks; },
                              .stop_wanted = [&] { return ticks > 2 && fs::exists(begun); }});
  EXPECT_TRUE(end.interrupted);
  EXPECT_FALSE(end.timed_out);
  EXPECT_EQ(end.signal, SIGTERM);
}

// Under nohup the rows are to go on as well; what ends a row on request is not to be ignored.
TEST_F(RowProcess, IgnoresWhatTheLabIgnoresButTheWordToEnd) {
  const auto before_hup = std::signal(SIGHUP, SIG_IGN), before_term = std::signal(SIGTERM, SIG_IGN);
  std::string text;
  run("kill -HUP $$; echo on; kill -TERM $$; echo on", {}, &text);
  std::signal(SIGHUP, before_hup);
  std::signal(SIGTERM, before_term);
  EXPECT_EQ(text, "on\n");
}

TEST_F(RowProcess, HearsWhatTheLabListensTo) {
  const auto before = std::signal(SIGHUP, [](int) {});
  std::string text;
  const ProcessEnd end = run("kill -HUP $$; echo on", {}, &text);
  std::signal(SIGHUP, before);
  EXPECT_EQ(end.signal, SIGHUP);
  EXPECT_EQ(text, "");
}

TEST_F(RowProcess, IsFirstInLineForTheKernelsKiller) {
  std::string text;
  run("cat /proc/self/oom_score_adj", {}, &text);
  EXPECT_EQ(text, "1000\n");
}

TEST_F(RowProcess, IsGoneWhenSomebodyThrows) {
  const fs::path file = folder_ / "row";
  EXPECT_THROW(
      run("echo $$ >" + file.string() + "; exec sleep 1000", {.tick_seconds = 0.01,
                                                              .tick =
                                                                  [&] {
                                                                    if (fs::exists(file))
                                                                      throw UserError("no room");
                                                                  }}),
      UserError);
  EXPECT_TRUE(comes_true([&] { return !is_running(read_process(file)); }));
}

TEST(LastWords, AreFromTheProgramsOwnSentenceOn) {
  EXPECT_EQ(last_words_of("step 1\nwarning: x\nsnug: out of memory on cpu\nLargest: y\n"),
            "snug: out of memory on cpu\nLargest: y");
  EXPECT_EQ(last_words_of("  10%\r  50%\r 100%\ndone\r\n"), " 100%\ndone");
  EXPECT_EQ(last_words_of(""), "");
  EXPECT_EQ(last_words_of("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), "2\n3\n4\n5\n6\n7\n8\n9");
}

volatile std::sig_atomic_t heard = 0;
void hear(int) { heard = heard + 1; }

// What a signal does, put back when the test is over.
class Disposition {
 public:
  Disposition(int number, void (*handler)(int)) : number_(number) {
    struct sigaction wanted {};
    wanted.sa_handler = handler;
    ::sigaction(number, &wanted, &before_);
  }
  Disposition(const Disposition&) = delete;
  Disposition& operator=(const Disposition&) = delete;
  ~Disposition() { ::sigaction(number_, &before_, nullptr); }

 private:
  int number_;
  struct sigaction before_ {};
};

TEST(StopWish, HearsEachOfItsSignals) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const Disposition plain(number, SIG_DFL);
    const StopWish wish;
    EXPECT_FALSE(StopWish::wanted()) << "a new one knows nothing of an earlier one's wishes";
    std::raise(number);
    EXPECT_TRUE(StopWish::wanted()) << number;
  }
}

TEST(StopWish, ASecondSignalEndsTheProcess) {
  const auto twice = [] {
    const StopWish wish;
    std::raise(SIGINT);
    std::raise(SIGINT);
  };
  EXPECT_EXIT(twice(), ::testing::KilledBySignal(SIGINT), "");
}

// As nohup, and a shell that starts a command in the background, have it.
TEST(StopWish, WhatIsIgnoredStaysIgnored) {
  const Disposition ignored(SIGHUP, SIG_IGN);
  {
    const StopWish wish;
    std::raise(SIGHUP);
    EXPECT_FALSE(StopWish::wanted());
  }
  std::raise(SIGHUP);  // would end this process
}

TEST(StopWish, AfterItSignalsDoWhatTheyDidBefore) {
  const Disposition own(SIGTERM, hear);
  heard = 0;
  {
    const StopWish wish;
    std::raise(SIGTERM);
    EXPECT_TRUE(StopWish::wanted());
    EXPECT_EQ(heard, 0);
  }
  std::raise(SIGTERM);
  EXPECT_EQ(heard, 1);
}

}  // namespace
}  // namespace snug::lab
