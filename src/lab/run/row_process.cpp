// SPDX-License-Identifier: Apache-2.0
#include "lab/run/row_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "lab/run/row_output.h"
#include "watch/machine/machine.h"

extern char** environ;

namespace snug::lab {
namespace {

// The processes of one row are found by a variable in their environment, which their children
// inherit: ranks and MPI's daemons leave the process group and session, but keep the environment.
constexpr std::string_view kMark = "SNUG_LAB_ROW=";
constexpr int kMostSweeps = 200;  // through all processes

bool has_mark(const std::filesystem::path& process, const std::string& mark) {
  std::ifstream file(process / "environ", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + 1)) {
    const size_t end = at + mark.size();
    if ((at == 0 || text[at - 1] == '\0') && (end == text.size() || text[end] == '\0')) return true;
  }
  return false;
}

// "SNUG_LAB_ROW=1234-1", different each time.
std::string new_mark() {
  static std::atomic<int> count{0};
  return fmt::format("{}{}-{}", kMark, ::getpid(), ++count);
}

// Whether this variable marks a lab within a lab.
bool is_mark(const char* variable) { return std::string_view(variable).starts_with(kMark); }

// Without this process and zombies.
std::vector<pid_t> processes_with(const std::string& mark) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t process = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), process);
    if (read.ec != std::errc() || process == ::getpid()) continue;
    if (has_mark(entry.path(), mark)) found.push_back(process);
  }
  return found;
}

// Repeats until none is found: a process may have started another just before it was killed.
void end_processes_with(const std::string& mark) {
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    const std::vector<pid_t> found = processes_with(mark);
    if (found.empty()) return;
    for (const pid_t process : found) ::kill(process, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

using Clock = std::chrono::steady_clock;

constexpr int kPollMilliseconds = 100;
constexpr double kPatience = 5;                   // from SIGTERM to SIGKILL
constexpr size_t kMostErrors = size_t{64} << 10;  // of which the last words are taken
constexpr int kMostReads = 1000;                  // of what a pipe still holds

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// Between fork and exec: restores the default for signals that this process handles. Ignored
// signals, such as SIGHUP under nohup, stay ignored, except SIGTERM, which ends the child.
void reset_signals() {
  for (const int number : {SIGINT, SIGHUP}) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
      ::signal(number, SIG_DFL);
  }
  for (const int number : {SIGTERM, SIGPIPE}) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

class Child {
 public:
  Child(const ProcessWish& wish, std::string* text)
      : wish_(wish), text_(text), output_(wish.output), mark_(new_mark()) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (process_ > 0) end_all();  // somebody threw
  }

  ProcessEnd run();

 private:
  void start();
  [[noreturn]] void become_program(const char* path, char** words, char** environment, pid_t lab);
  double seconds() const { return std::chrono::duration<double>(Clock::now() - started_).count(); }
  void wait_for_something();
  bool read_output();
  bool read(Pipe& pipe, std::string* text);
  void check_time();
  void ask_to_end();
  bool is_over() const;
  void end_all();
  void describe();

  const ProcessWish& wish_;
  std::string* text_;
  RowOutput output_;
  Pipe out_, err_;
  std::string mark_;
  std::string errors_;
  Clock::time_point started_ = Clock::now();
  double next_tick_ = 0;
  double asked_at_ = -1;
  bool was_killed_ = false;  // by this process
  std::optional<int64_t> kills_before_;
  pid_t process_ = -1;
  int status_ = 0;
  ProcessEnd end_;
};

ProcessEnd Child::run() {
  kills_before_ = machine::out_of_memory_kills();
  start();
  while (!is_over()) {
    wait_for_something();
    read_output();
    check_time();
    if (wish_.tick && seconds() >= next_tick_) {
      wish_.tick();
      next_tick_ = seconds() + wish_.tick_seconds;
    }
  }
  end_.seconds = seconds();
  end_all();
  for (int i = 0; i < kMostReads && read_output(); ++i) {
  }
  describe();
  return std::move(end_);
}

void Child::start() {
  std::vector<std::string> words{this_program().string()};
  words.insert(words.end(), wish_.words.begin(), wish_.words.end());
  std::vector<std::string> environment{mark_};
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!is_mark(*variable)) environment.emplace_back(*variable);
  const std::vector<char*> argv = pointers(words), envp = pointers(environment);
  const pid_t lab = ::getpid();
  started_ = Clock::now();
  process_ = ::fork();
  if (process_ < 0) throw UserError("cannot start a process: {}", std::strerror(errno));
  if (process_ == 0)
    become_program(words.front().c_str(), const_cast<char**>(argv.data()),
                   const_cast<char**>(envp.data()), lab);
  Pipe::close(out_.writer);
  Pipe::close(err_.writer);
}

// Between fork and exec of a process that may have other threads: system calls only.
void Child::become_program(const char* path, char** words, char** environment, pid_t lab) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != lab) ::_exit(1);
  // When memory runs out the kernel is to take the row and not who watches it.
  if (const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); score >= 0) {
    [[maybe_unused]] const ssize_t written = ::write(score, "1000", 4);
    ::close(score);
  }
  reset_signals();
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (::dup2(nothing, STDIN_FILENO) >= 0 && ::dup2(out_.writer, STDOUT_FILENO) >= 0 &&
      ::dup2(err_.writer, STDERR_FILENO) >= 0)
    ::execve(path, words, environment);
  const char* reason = ::strerrordesc_np(errno);
  for (const char* part :
       {"snug: cannot start ", path, ": ", reason == nullptr ? "?" : reason, "\n"})
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, part, std::strlen(part));
  ::_exit(127);
}

bool Child::is_over() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == process_;
}

// An end closes both pipes, which wakes this up.
void Child::wait_for_something() {
  std::array<pollfd, 2> polled{pollfd{.fd = out_.reader, .events = POLLIN, .revents = 0},
                               pollfd{.fd = err_.reader, .events = POLLIN, .revents = 0}};
  const bool all_closed = out_.reader < 0 && err_.reader < 0;
  ::poll(polled.data(), polled.size(), all_closed ? kPollMilliseconds / 10 : kPollMilliseconds);
}

// A piece of each, so that a child that never stops talking can still be ended. True where there
// may be more.
bool Child::read_output() {
  const bool more_out = read(out_, text_), more_err = read(err_, &errors_);
  if (errors_.size() > 2 * kMostErrors) errors_.erase(0, errors_.size() - kMostErrors);
  return more_out || more_err;
}

// True where there may be more.
bool Child::read(Pipe& pipe, std::string* text) {
  if (pipe.reader < 0) return false;
  std::array<char, 1 << 16> buffer;
  const ssize_t got = ::read(pipe.reader, buffer.data(), buffer.size());
  if (got == 0) Pipe::close(pipe.reader);
  if (got <= 0) return false;
  const std::string_view part(buffer.data(), static_cast<size_t>(got));
  if (text != nullptr && text->size() < kMostOutput) text->append(part);
  if (text == nullptr || text == &errors_) output_.write(part);
  return true;
}

void Child::check_time() {
  if (asked_at_ >= 0) {
    if (seconds() - asked_at_ < kPatience || was_killed_) return;
    was_killed_ = true;
    ::kill(-process_, SIGKILL);
    return;
  }
  end_.timed_out = wish_.timeout_seconds > 0 && seconds() > wish_.timeout_seconds;
  end_.interrupted = !end_.timed_out && wish_.stop_wanted && wish_.stop_wanted();
  if (end_.timed_out || end_.interrupted) ask_to_end();
}

void Child::ask_to_end() {
  asked_at_ = seconds();
  if (::kill(-process_, SIGTERM) != 0) ::kill(process_, SIGTERM);  // before it has its own group
}

void Child::end_all() {
  if (!is_over()) {
    was_killed_ = true;
    ::kill(process_, SIGKILL);
  } else {
    end_.survivors = static_cast<int>(processes_with(mark_).size());
  }
  ::kill(-process_, SIGKILL);  // nobody else has this number until it is waited for
  ::waitpid(process_, &status_, 0);
  process_ = -1;
  end_processes_with(mark_);
}

void Child::describe() {
  if (WIFEXITED(status_)) end_.exit_code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) end_.signal = WTERMSIG(status_);
  const std::optional<int64_t> kills = machine::out_of_memory_kills();
  end_.killed_by_kernel_for_memory =
      end_.signal == SIGKILL && !was_killed_ && kills && *kills > kills_before_.value_or(*kills);
  end_.last_words = last_words_of(errors_);
  end_.output_fault = output_.fault();
}

}  // namespace

ProcessEnd run_process(const ProcessWish& wish, std::string* text) {
  return Child(wish, text).run();
}

std::filesystem::path this_program() {
  if (const char* other = std::getenv("SNUG_LAB_PROGRAM"); other != nullptr && *other != '\0')
    return other;
  return std::filesystem::read_symlink("/proc/self/exe");
}

namespace {

volatile std::sig_atomic_t is_wanted = 0;

// The kernel kills the rows with this process (PR_SET_PDEATHSIG).
void on_signal(int number) {
  if (is_wanted != 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  is_wanted = 1;
}

}  // namespace

StopWish::StopWish() {
  is_wanted = 0;
  struct sigaction wish {};
  wish.sa_handler = on_signal;
  wish.sa_flags = SA_RESTART;
  sigemptyset(&wish.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &wish, nullptr);
  }
}

StopWish::~StopWish() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

bool StopWish::wanted() { return is_wanted != 0; }

}  // namespace snug::lab
