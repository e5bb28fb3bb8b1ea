// A child is known by a word in its environment, which all that it starts inherit: ranks and MPI's
// daemons leave process group and session, this they keep.
// SPDX-License-Identifier: Apache-2.0
#include "experiment/row_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "machine/machine.h"

extern char** environ;

namespace snug::experiment {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kMark = "SNUG_LAB_ROW=";
constexpr int kPollMilliseconds = 100;
constexpr double kPatience = 5;  // from SIGTERM to SIGKILL
constexpr size_t kMostOutput = size_t{64} << 20;
constexpr size_t kMostErrors = size_t{64} << 10;  // of which the last words are taken
constexpr int kMostReads = 1000;                  // of what a pipe still holds
constexpr int kMostSweeps = 200;                  // over the processes that are to end

std::string new_mark() {
  static std::atomic<int> count{0};
  return fmt::format("{}{}-{}", kMark, ::getpid(), ++count);
}

// Text behind the last carriage return of each line, as a terminal would show it.
std::string as_shown(const std::string& line) {
  const size_t end = line.find_last_not_of('\r');
  if (end == std::string::npos) return "";
  const size_t begin = line.rfind('\r', end);
  return line.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin + 1) + 1);
}

// Where a child's output goes: the start of it, and the news that there was more. A disk that is
// full must not stop the child by a pipe that nobody reads.
class Output {
 public:
  explicit Output(const std::filesystem::path& path) : path_(path) {
    if (path.empty()) return;
    file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file_ < 0) throw UserError("cannot create {}: {}", path.string(), std::strerror(errno));
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    if (file_ >= 0) ::close(file_);
  }

  void write(std::string_view text) {
    if (file_ < 0 || !fault_.empty()) return;
    if (written_ + text.size() > kMostOutput) {
      fault_ = fmt::format("more than {} MiB of output; the rest was left out", kMostOutput >> 20);
      text = "\n[more output was left out]\n";
    }
    while (!text.empty()) {
      const ssize_t done = ::write(file_, text.data(), text.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) {
        fault_ = fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno));
        return;
      }
      written_ += static_cast<size_t>(done);
      text.remove_prefix(static_cast<size_t>(done));
    }
  }
  const std::string& fault() const { return fault_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  size_t written_ = 0;
  std::string fault_;
};

struct Pipe {
  int reader = -1, writer = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw UserError("cannot start a process: {}", std::strerror(errno));
    reader = ends[0];
    writer = ends[1];
    ::fcntl(reader, F_SETFL, O_NONBLOCK);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(reader);
    close(writer);
  }
  static void close(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

bool has_mark(const std::filesystem::path& process, const std::string& mark) {
  std::ifstream file(process / "environ", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + 1)) {
    const size_t end = at + mark.size();
    if ((at == 0 || text[at - 1] == '\0') && (end == text.size() || text[end] == '\0')) return true;
  }
  return false;
}

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
  void end_survivors();
  void describe();

  const ProcessWish& wish_;
  std::string* text_;
  Output output_;
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
    if (std::strncmp(*variable, kMark, std::strlen(kMark)) != 0)
      environment.emplace_back(*variable);
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
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);
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
  end_survivors();
}

// Again until nobody is found: one may have begun another just before it was ended.
void Child::end_survivors() {
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    const std::vector<pid_t> found = processes_with(mark_);
    if (found.empty()) return;
    for (const pid_t process : found) ::kill(process, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
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

std::string last_words_of(const std::string& errors) {
  constexpr size_t kLines = 8;
  std::vector<std::string> lines;
  std::istringstream in(errors);
  for (std::string line; std::getline(in, line);) {
    line = as_shown(line);
    if (!line.empty()) lines.push_back(std::move(line));
  }
  const auto said = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) {
    return line.starts_with("snug: ");
  });
  size_t first = lines.size() > kLines ? lines.size() - kLines : 0;
  if (said != lines.rend()) first = static_cast<size_t>(lines.rend() - said) - 1;
  std::string text;
  for (size_t i = first; i < lines.size(); ++i) {
    if (!text.empty()) text += '\n';
    text += lines[i];
  }
  return text;
}

ProcessEnd run_process(const ProcessWish& wish, std::string* text) {
  return Child(wish, text).run();
}

std::filesystem::path this_program() {
  if (const char* other = std::getenv("SNUG_PROGRAM"); other != nullptr && *other != '\0')
    return other;
  return std::filesystem::read_symlink("/proc/self/exe");
}

}  // namespace snug::experiment
