// SPDX-License-Identifier: Apache-2.0
#include "train/launch/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/program.h"
#include "train/launch/relay.h"
#include "train/launch/verdict.h"

namespace snug::launch {
namespace {

constexpr int kPollMilliseconds = 100;
// After a failure mpirun ends the other ranks by itself; if it does not, it is ended, and if that
// does not help, all that is known of is killed.
constexpr double kPatience = 8;
constexpr double kLastPatience = 14;
constexpr size_t kMostWords = size_t{1} << 16;

struct Pipe {
  int reader = -1;
  int writer = -1;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw UserError("cannot start processes: {}", std::strerror(errno));
  return {ends[0], ends[1]};
}

std::string new_job_name() {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return fmt::format("{}-{}-{:x}", host_name(), ::getpid(), now);
}

std::filesystem::path make_folder(const std::string& out_dir) {
  const std::filesystem::path folder = logs_folder(out_dir);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw UserError(
        "cannot make the folder {} for the ranks' logs: {}; choose another with --out_dir",
        folder.string(), error.message());
  if (::access(folder.c_str(), W_OK) != 0)
    throw UserError("cannot write into {}; choose another folder with --out_dir", folder.string());
  clear_folder(folder);
  return folder;
}

class Supervisor {
 public:
  Supervisor(MpirunOptions options, const std::string& out_dir);
  int run();

 private:
  void start_mpirun();
  [[noreturn]] void become_mpirun(pid_t supervisor);
  void wait_for_something();
  void handle_signals();
  void ask_to_stop();
  void pass_on();
  bool pass_on_output();
  bool take_words();
  void check_child();
  void check_failure();
  void tell_size();
  void kill_local_ranks();
  Verdict verdict();

  MpirunOptions options_;
  std::string out_dir_;
  std::filesystem::path folder_;
  std::string job_ = new_job_name();
  int num_ranks_;
  RunJson run_json_;
  Watch watch_;
  RunningTime time_;
  sigset_t signals_before_{};
  int signals_ = -1;
  Pipe orders_, output_, errors_;
  FrameReader frames_;
  std::string words_;  // mpirun's own
  std::string line_;
  pid_t mpirun_ = -1;
  int status_ = 0;
  bool is_over_ = false;
  int stops_wanted_ = 0;
  double next_stop_ = 0;
  double failed_at_ = -1;
  int pushes_ = 0;
};

Supervisor::Supervisor(MpirunOptions options, const std::string& out_dir)
    : options_(std::move(options)),
      out_dir_(out_dir),
      folder_(make_folder(out_dir)),
      num_ranks_(options_.devices * options_.num_nodes),
      run_json_(out_dir),
      watch_(folder_, job_, num_ranks_) {}

int Supervisor::run() {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number :
       {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGWINCH, SIGPIPE, SIGTSTP})
    sigaddset(&handled, number);
  ::sigprocmask(SIG_BLOCK, &handled, &signals_before_);
  signals_ = ::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
  start_mpirun();
  while (!is_over_) {
    wait_for_something();
    handle_signals();
    pass_on();
    check_child();
    check_failure();
  }
  pass_on();
  kill_local_ranks();
  const Verdict end = verdict();
  ::sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  if (!end.message.empty()) std::fprintf(stderr, "snug: %s\n", end.message.c_str());
  if (end.exit_code != 0) run_json_.amend(end);
  return end.exit_code;
}

void Supervisor::start_mpirun() {
  ::setenv(kJobVariable, job_.c_str(), 1);
  ::setenv(kStartVariable, program_start().c_str(), 1);
  const auto terminal = size_if_terminal(STDERR_FILENO);
  if (terminal)
    ::setenv(kTerminalVariable, text_of(*terminal).c_str(), 1);
  else
    ::unsetenv(kTerminalVariable);
  if (!environment("OMP_NUM_THREADS"))
    ::setenv("OMP_NUM_THREADS", fmt::format("{}", options_.num_threads).c_str(), 1);
  // More threads than cores must not wait for each other by looking again and again.
  const int threads = std::atoi(environment("OMP_NUM_THREADS")->c_str());
  if (threads * options_.devices > static_cast<int>(std::thread::hardware_concurrency())) {
    ::setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
    // It would count for more than the policy; only our own is taken back.
    if ("GOMP_SPINCOUNT=" + environment("GOMP_SPINCOUNT").value_or("") == kShortWaits)
      ::unsetenv("GOMP_SPINCOUNT");
  }
  options_.variables = variables_to_export(environ);
  orders_ = make_pipe();
  output_ = make_pipe();
  errors_ = make_pipe();
  std::fflush(nullptr);
  const pid_t self = ::getpid();
  mpirun_ = ::fork();
  if (mpirun_ < 0) throw UserError("cannot start mpirun: {}", std::strerror(errno));
  if (mpirun_ == 0) become_mpirun(self);
  ::close(orders_.reader);
  ::close(output_.writer);
  ::close(errors_.writer);
  for (const int descriptor : {orders_.writer, output_.reader, errors_.reader})
    ::fcntl(descriptor, F_SETFL, O_NONBLOCK);
}

// Without the terminal (setsid): Ctrl-C goes to the supervisor, and ssh cannot ask for a password.
void Supervisor::become_mpirun(pid_t supervisor) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != supervisor) ::_exit(1);
  ::sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  ::dup2(orders_.reader, STDIN_FILENO);
  ::dup2(output_.writer, STDOUT_FILENO);
  ::dup2(errors_.writer, STDERR_FILENO);
  // A step of Slurm that runs this program must not be taken for the one that runs the ranks.
  for (const char* variable : {"PMIX_NAMESPACE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD"})
    ::unsetenv(variable);
  const std::vector<std::string> words = mpirun_command(options_, environment);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  std::fprintf(stderr, "cannot run %s: %s\n", argv[0], std::strerror(errno));
  ::_exit(127);
}

void Supervisor::wait_for_something() {
  std::array<pollfd, 3> polled{};
  polled[0] = {.fd = signals_, .events = POLLIN, .revents = 0};
  polled[1] = {.fd = output_.reader, .events = POLLIN, .revents = 0};
  polled[2] = {.fd = errors_.reader, .events = POLLIN, .revents = 0};
  ::poll(polled.data(), polled.size(), kPollMilliseconds);
}

// The first Ctrl-C stops the run after the step in flight, the second one ends it.
void Supervisor::handle_signals() {
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const auto number = static_cast<int>(info.ssi_signo);
    if (number == SIGWINCH) tell_size();
    if ((number == SIGINT || number == SIGTERM) && ++stops_wanted_ > 1) ::kill(mpirun_, SIGTERM);
    // These never hasten an end.
    if (number == SIGHUP || number == SIGUSR1 || number == SIGUSR2 || number == SIGXCPU)
      stops_wanted_ = std::max(stops_wanted_, 1);
  }
  ask_to_stop();
}

// Again and again, since what mpirun is told while ranks start reaches none of them.
void Supervisor::ask_to_stop() {
  constexpr double kReminder = 1;
  if (stops_wanted_ != 1 || is_over_ || time_.seconds() < next_stop_) return;
  ::kill(mpirun_, SIGUSR1);
  next_stop_ = time_.seconds() + kReminder;
}

void Supervisor::tell_size() {
  if (const auto size = size_if_terminal(STDERR_FILENO))
    write_all(orders_.writer, text_of(*size) + "\n");
}

void Supervisor::pass_on() {
  if (output_.reader >= 0 && !pass_on_output()) {
    ::close(output_.reader);
    output_.reader = -1;
  }
  if (errors_.reader >= 0 && !take_words()) {
    ::close(errors_.reader);
    errors_.reader = -1;
  }
}

// False at the end of the stream.
bool Supervisor::pass_on_output() {
  std::array<char, 1 << 14> buffer;
  while (true) {
    const ssize_t got = ::read(output_.reader, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    frames_.take({buffer.data(), static_cast<size_t>(got)},
                 [](Channel channel, std::string_view bytes) {
                   write_all(channel == Channel::Out ? STDOUT_FILENO : STDERR_FILENO, bytes);
                 });
  }
}

// mpirun's messages are kept in case no rank says why the run ended. Messages of keepers that could
// not write a record are shown to the user.
bool Supervisor::take_words() {
  std::array<char, 1 << 12> buffer;
  while (true) {
    const ssize_t got = ::read(errors_.reader, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    if (words_.size() < kMostWords) words_.append(buffer.data(), static_cast<size_t>(got));
    line_.append(buffer.data(), static_cast<size_t>(got));
    for (size_t end = line_.find('\n'); end != line_.npos; end = line_.find('\n')) {
      if (line_.starts_with("warning: ")) write_all(STDERR_FILENO, line_.substr(0, end + 1));
      line_.erase(0, end + 1);
    }
  }
}

void Supervisor::check_child() {
  int status = 0;
  if (::waitpid(mpirun_, &status, WNOHANG) != mpirun_) return;
  status_ = status;
  is_over_ = true;
}

void Supervisor::check_failure() {
  if (is_over_) return;
  watch_.look();
  const double now = time_.seconds();
  if (failed_at_ < 0 && watch_.is_settled()) {
    failed_at_ = now;
    write_job_end(folder_, job_);  // also for machines that mpirun does not reach any more
  }
  if (failed_at_ < 0) return;
  if (now - failed_at_ > kPatience && pushes_ == 0) {
    ++pushes_;
    ::kill(mpirun_, SIGTERM);
  } else if (now - failed_at_ > kLastPatience && pushes_ == 1) {
    ++pushes_;
    ::kill(mpirun_, SIGKILL);
  }
}

// The last resort, for ranks that outlived mpirun on this machine; usually none. The environment
// shows whether a process id belongs to another program by now.
void Supervisor::kill_local_ranks() {
  watch_.look_now();
  const std::string mark = fmt::format("{}={}", kJobVariable, job_);
  for (const auto& record : watch_.records()) {
    if (!record || record->host != host_name()) continue;
    for (const int64_t process : {record->keeper, record->process}) {
      const std::string path = fmt::format("/proc/{}/environ", process);
      if (process <= 0 || ::access(path.c_str(), R_OK) != 0) continue;
      try {
        const std::string variables = read_file(path);
        if (variables.find(mark) != variables.npos) ::kill(static_cast<pid_t>(process), SIGKILL);
      } catch (const UserError&) {  // it has gone meanwhile
      }
    }
  }
}

Verdict Supervisor::verdict() {
  const int exit_code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  const Verdict judged = judge(watch_.records(), out_dir_, stops_wanted_ > 0);
  if (judged.exit_code != 0) return judged;
  if (exit_code == 0) return {};
  if (stops_wanted_ > 0)
    return {.exit_code = Interrupted::kExitCode, .message = "stopped on request"};
  // A keeper that could not write its record has printed the message instead.
  if (const size_t said = words_.find("snug: "); said != words_.npos)
    return {.exit_code = exit_code == 2 || exit_code == 3 ? exit_code : 1,
            .message = words_.substr(said + 6, words_.find("\n---", said) - said - 6)};
  const std::string why = condensed(words_);
  const bool began =
      std::ranges::any_of(watch_.records(), [](const auto& r) { return r.has_value(); });
  if (!began)
    return {.exit_code = 2,
            .message = fmt::format(
                "mpirun could not start {} processes{}{}: {}", num_ranks_,
                options_.hosts.empty() ? "" : " on " + options_.hosts,
                options_.hostfile.empty() ? "" : " on the hosts of " + options_.hostfile,
                why.empty() ? fmt::format("exit code {}, without a message", exit_code) : why)};
  std::string how = WIFSIGNALED(status_) ? "mpirun was killed by " + signal_text(WTERMSIG(status_))
                                         : fmt::format("mpirun ended with exit code {}", exit_code);
  if (!why.empty()) how += ": " + why;
  // A keeper notes how its rank ends, unless it is killed itself.
  std::vector<std::string> silent;
  for (const auto& record : watch_.records())
    if (record && record->ending == Ending::Running)
      silent.push_back(fmt::format("rank {} of {} ({}, process {})", record->rank, num_ranks_,
                                   record->host, record->process));
  if (!silent.empty() && WIFEXITED(status_))
    how = fmt::format("{} ended without a message, and so did the process that supervises it; {}",
                      fmt::join(silent, ", "), how);
  return judge_silent_end(how, 1, out_dir_);
}

}  // namespace

int supervise(MpirunOptions options, const std::string& out_dir) {
  return Supervisor(std::move(options), out_dir).run();
}

}  // namespace snug::launch
