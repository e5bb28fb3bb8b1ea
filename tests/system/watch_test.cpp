// snug monitor and snug doctor as a person sees them: in a pseudo-terminal beside a real run, and
// in a pipe.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/error.h"
#include "base/files.h"
#include "report/live_status.h"
#include "system/program.h"

namespace snug::tests {
namespace {

using Clock = std::chrono::steady_clock;
using json = nlohmann::json;

constexpr const char* kEnter = "\x1b[?1049h";
constexpr const char* kLeave = "\x1b[?1049l";
constexpr const char* kShowCursor = "\x1b[?25h";

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// The program in a terminal of its own.
class InTerminal {
 public:
  InTerminal(std::vector<std::string> words, const fs::path& folder, int columns, int rows) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = static_cast<unsigned short>(rows);
    child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ != 0) {
      ::tcgetattr(terminal_, &before_);
      return;
    }
    if (::chdir(folder.c_str()) != 0) ::_exit(126);
    ::setenv("TERM", "xterm-256color", 1);
    ::setenv("LC_ALL", "C.UTF-8", 1);
    words.insert(words.begin(), SNUG_BINARY);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(SNUG_BINARY, argv.data());
    ::_exit(127);
  }
  ~InTerminal() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(terminal_);
  }

  // Reads until the text is there; false where the program ends or half a minute passes before.
  bool wait_for(const std::string& text) {
    const auto until = Clock::now() + std::chrono::seconds(30);
    while (!has(seen_, text) && Clock::now() < until)
      if (!read_some()) return has(seen_, text);
    return has(seen_, text);
  }
  void forget() { seen_.clear(); }
  void press(char key) { EXPECT_EQ(::write(terminal_, &key, 1), 1); }
  void resize(int columns, int rows) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = static_cast<unsigned short>(rows);
    EXPECT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
  }
  void send(int signal_number) const { ::kill(child_, signal_number); }
  // Reads to the end; the exit code as a shell tells it.
  int end() {
    while (read_some()) {
    }
    termios after{};
    if (::tcgetattr(terminal_, &after) == 0) modes_are_back_ = after.c_lflag == before_.c_lflag;
    const int code = finish(child_);
    child_ = -1;
    return code;
  }
  const std::string& seen() const { return seen_; }
  bool modes_are_back() const { return modes_are_back_; }

 private:
  bool read_some() {
    pollfd ready{.fd = terminal_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 30'000) <= 0) return false;
    char buffer[4096];
    const ssize_t size = ::read(terminal_, buffer, sizeof buffer);
    if (size <= 0) return false;
    seen_.append(buffer, static_cast<size_t>(size));
    return true;
  }

  int terminal_ = -1;
  pid_t child_ = -1;
  termios before_{};
  bool modes_are_back_ = false;
  std::string seen_;
};

void expect_terminal_as_before(const InTerminal& terminal) {
  const std::string& seen = terminal.seen();
  EXPECT_NE(seen.rfind(kLeave), seen.npos);
  const size_t entered = seen.rfind(kEnter);  // not there where that was forgotten
  EXPECT_TRUE(entered == seen.npos || seen.rfind(kLeave) > entered);
  EXPECT_NE(seen.rfind(kShowCursor), seen.npos);
  EXPECT_TRUE(terminal.modes_are_back());
}

class Watch : public testing::Test {
 protected:
  void SetUp() override { rows_ = write_rows(folder_ / "rows.jsonl", 64); }
  void TearDown() override {
    if (run_ > 0) {
      ::kill(run_, SIGKILL);
      finish(run_);
    }
  }

  // A run that goes on for as long as the test wants.
  void start_long_run() {
    run_ = start(finetune_words(rows_, out_,
                                {"--train.epochs", "100000", "--train.lr_warmup_steps", "0",
                                 "--memory_budget", "1GiB"}),
                 folder_ / "log");
    const auto until = Clock::now() + std::chrono::seconds(60);
    while (Clock::now() < until) {
      try {
        const report::LiveState live = report::read_live_json(report::live_file(out_, 0));
        if (live.step > 0) return;
        if (live.state == "ended") break;
      } catch (const UserError&) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    FAIL() << "the run does not begin: " << read_file(folder_ / "log");
  }
  void kill_run() {
    ::kill(run_, SIGKILL);
    finish(run_);
    run_ = -1;
  }

  TempFolder folder_;
  fs::path rows_;
  const fs::path out_ = folder_ / "out/run";
  pid_t run_ = -1;
};

TEST_F(Watch, ARunInATerminal) {
  start_long_run();
  InTerminal monitor({"monitor", "--interval", "0.1"}, folder_.path(), 100, 40);  // the newest run
  ASSERT_TRUE(monitor.wait_for("tok/s")) << monitor.seen();
  for (const char* part : {kEnter, "training", "parameters", "1.00 GiB", "Processor", "q quit"})
    EXPECT_TRUE(monitor.wait_for(part)) << part;
  monitor.press('h');
  EXPECT_TRUE(monitor.wait_for("kept for backward"));
  monitor.forget();
  monitor.resize(40, 12);
  monitor.press('h');
  EXPECT_TRUE(monitor.wait_for("q quit")) << "drawn anew";
  monitor.press('q');
  EXPECT_EQ(monitor.end(), 0);
  expect_terminal_as_before(monitor);
  EXPECT_EQ(::kill(run_, 0), 0) << "the run goes on";
}

TEST_F(Watch, TheTerminalIsAsBeforeWhateverEndsIt) {
  start_long_run();
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGABRT, SIGSEGV}) {
    InTerminal monitor({"monitor", out_.string(), "--interval", "0.1"}, folder_.path(), 80, 24);
    ASSERT_TRUE(monitor.wait_for("q quit"));
    monitor.send(signal_number);
    const bool crashes = signal_number == SIGABRT || signal_number == SIGSEGV;
    EXPECT_EQ(monitor.end(), crashes ? 128 + signal_number : 0) << signal_number;
    expect_terminal_as_before(monitor);
  }
}

TEST_F(Watch, EndsWithARunThatIsKilled) {
  start_long_run();
  InTerminal monitor({"monitor", out_.string(), "--interval", "0.1"}, folder_.path(), 100, 40);
  ASSERT_TRUE(monitor.wait_for("training"));
  kill_run();
  EXPECT_EQ(monitor.end(), 0);
  expect_terminal_as_before(monitor);
  const std::string& seen = monitor.seen();
  EXPECT_TRUE(has(seen.substr(seen.rfind(kLeave)), "stopped unexpectedly")) << seen;
}

TEST_F(Watch, ARunFromBeginToEndInAPipe) {
  fs::create_directories(out_);
  const pid_t monitor = start({"monitor", out_.string(), "--interval", "0.1"}, folder_ / "seen");
  const auto until = Clock::now() + std::chrono::seconds(30);
  const auto waits = [&] {
    return fs::exists(folder_ / "seen") && has(read_file(folder_ / "seen"), "waiting");
  };
  while (!waits() && Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Result result = run(finetune_words(rows_, out_));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(finish(monitor), 0);
  const std::string seen = read_file(folder_ / "seen");
  EXPECT_TRUE(seen.starts_with("waiting\n")) << seen;
  EXPECT_TRUE(seen.ends_with("the run ended: ok after 8 steps\n")) << seen;
  EXPECT_FALSE(has(seen, "\x1b")) << seen;
}

TEST_F(Watch, WhatARunLeaves) {
  ASSERT_EQ(run(finetune_words(rows_, out_)).exit_code, 0);
  const report::LiveState live = report::read_live_json(report::live_file(out_, 0));
  const json record = read_run(out_);
  EXPECT_EQ(live.state, "ended");
  EXPECT_EQ(live.outcome, "ok");
  EXPECT_EQ(live.step, 8);
  EXPECT_EQ(live.total_steps, 8);
  EXPECT_EQ(live.losses.size(), 8U);
  EXPECT_EQ(live.loss, record["steps"].back()["loss"].get<double>());
  EXPECT_EQ(live.peak, record["memory"]["measured"]["peak_allocated"].get<int64_t>());
  EXPECT_EQ(live.predicted_peak, record["memory"]["predicted"]["peak_allocated"].get<int64_t>());
  EXPECT_EQ(live.world_size, 1);
  EXPECT_EQ(live.model, tiny_checkpoint() + "/config.json") << "its weights are random";
  int64_t sum = 0;
  for (const auto& [category, bytes] : live.peak_by_category) sum += bytes;
  EXPECT_EQ(sum, live.peak) << "there is no residual category";
  const Result once = run({"monitor", out_.string(), "--once"});
  EXPECT_EQ(once.exit_code, 0);
  EXPECT_TRUE(has(once.output, "the run ended: ok after 8 steps")) << once.output;
  const Result as_json = run({"monitor", out_.string(), "--json"});
  EXPECT_EQ(as_json.exit_code, 0);
  EXPECT_EQ(json::parse(as_json.output)["state"], "ok") << "one line: it is over";
}

TEST_F(Watch, OutOfMemoryAndErrorsAreSaid) {
  ASSERT_EQ(run(finetune_words(rows_, out_, {"--memory_budget", "100KiB", "--force"})).exit_code,
            3);
  const report::LiveState oom = report::read_live_json(report::live_file(out_, 0));
  EXPECT_EQ(oom.state, "ended");
  EXPECT_EQ(oom.outcome, "oom");
  EXPECT_FALSE(oom.reason.empty());
  EXPECT_FALSE(has(oom.reason, "\n"));
  ASSERT_EQ(run(finetune_words(folder_ / "none.jsonl", out_)).exit_code, 2);
  const report::LiveState error = report::read_live_json(report::live_file(out_, 0));
  EXPECT_EQ(error.outcome, "error");
  EXPECT_TRUE(has(error.reason, "none.jsonl")) << error.reason;
}

TEST_F(Watch, NoRunIsAnErrorThatSaysWhatToDo) {
  const Result result = run({"monitor", (folder_ / "nothing").string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(has(result.output, "no such folder")) << result.output;
}

TEST_F(Watch, Doctor) {
  const Result text = run({"doctor", "--out_dir", folder_.path().string()});
  const Result as_json = run({"doctor", "--out_dir", folder_.path().string(), "--json"});
  const json found = json::parse(as_json.output);
  EXPECT_EQ(text.exit_code, found["missing"] == 0 ? 0 : 2);
  EXPECT_EQ(as_json.exit_code, text.exit_code);
  for (const json& finding : found["findings"])
    EXPECT_TRUE(has(text.output, finding["subject"])) << finding;
  EXPECT_FALSE(has(text.output, "\x1b"));
  EXPECT_TRUE(has(text.output, "libtorch 2.")) << text.output;
}

}  // namespace
}  // namespace snug::tests
