// SPDX-License-Identifier: Apache-2.0
#include "train/launch/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/program.h"
#include "core/dist/status_page.h"
#include "train/launch/relay.h"
#include "train/launch/verdict.h"
#include "watch/machine/machine.h"

namespace snug::launch {
namespace {

using Json = nlohmann::json;

constexpr int kTickMilliseconds = 100;
constexpr double kTouchSeconds = 5;
constexpr double kJobSeconds = 0.5;
// How long a keeper stays after its rank failed: others that fail for the same cause must record it
// before all are killed.
constexpr double kLingerSeconds = 1;
// A rank that has reported its end and does not exit is waiting for others in vain.
constexpr double kEndingSeconds = 3;
// How long rank 0's keeper waits for the others' last word.
constexpr double kFarewellSeconds = 5;

int to_keeper = -1;  // in the rank

std::string activity_of(const dist::RankStatus& status) {
  std::string text = status.activity;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  };
  if (status.state == dist::RankState::Joining) add("joining the others");
  if (status.started > status.finished) {
    add("in " + status.collective);
    if (!status.unit.empty()) add("unit " + status.unit);
  }
  return text;
}

// The end of the log, for a program that failed without an error of ours.
std::string last_words(const std::filesystem::path& log) {
  constexpr size_t kLines = 6;
  std::vector<std::string> lines;
  try {
    std::istringstream text(read_file(log));
    for (std::string line; std::getline(text, line);)
      if (!line.empty()) lines.push_back(line);
  } catch (const UserError&) {
    return "";
  }
  std::string words;
  for (size_t i = lines.size() - std::min(lines.size(), kLines); i < lines.size(); ++i)
    words += (words.empty() ? "" : "\n") + lines[i];
  return words;
}

Ending ending_of_exit(int exit_code) {
  switch (exit_code) {
    case 2:
      return Ending::UserError;
    case 3:
      return Ending::OutOfMemory;
    case Interrupted::kExitCode:
      return Ending::Interrupted;
    default:
      return Ending::InternalError;
  }
}

class Keeper {
 public:
  explicit Keeper(const KeeperOptions& options);
  ~Keeper();

  std::optional<int> run();

 private:
  void begin_rank();
  void watch_over_it();
  void wait_for_something(int milliseconds);
  void handle_signals();
  void handle_orders();
  void read_told();
  void check_child();
  void check_signs_of_life();
  void check_job();
  void end_rank(Ending why, const std::string& text);
  void describe_end();
  void note_end();
  bool speaks() const { return options_.rank == 0 && !options_.is_supervised; }
  int say_farewell();

  KeeperOptions options_;
  std::filesystem::path folder_;
  RankRecord record_;
  Relay relay_;
  RunJson run_json_;
  Watch watch_;
  RunningTime time_;
  sigset_t signals_before_{};
  int signals_ = -1;
  std::array<int, 2> told_pipe_{-1, -1};
  std::string told_;
  double told_at_ = -1;        // when it had said everything
  bool takes_orders_ = false;  // from the supervisor, on standard input
  std::string orders_;
  std::optional<int64_t> kills_before_;
  int status_ = 0;
  bool is_over_ = false;
  bool must_leave_ = false;  // whoever started us is ending the job
  bool stop_wanted_ = false, end_wanted_ = false;
  bool is_stopped_ = false;  // by a signal such as SIGSTOP
  int stop_signal_ = 0;
  int64_t last_beat_ = 0;
  double beat_at_ = 0;
  double touched_at_ = 0;
  double job_looked_at_ = 0;
};

Keeper::Keeper(const KeeperOptions& options)
    : options_(options),
      folder_(logs_folder(options.out_dir)),
      record_{.job = options.job, .rank = options.rank, .host = host_name(), .keeper = ::getpid()},
      relay_({.log = log_file(folder_, options.rank),
              .shows = options.rank == 0,
              .framed = options.is_supervised,
              .terminal = read_terminal_size(options.terminal)}),
      run_json_(options.out_dir),
      watch_(folder_, options.job, options.size),
      takes_orders_(options.rank == 0 && options.is_supervised) {
  if (::pipe2(told_pipe_.data(), O_CLOEXEC) != 0)
    throw UserError("cannot start rank {}: {}", options.rank, std::strerror(errno));
}

Keeper::~Keeper() {
  for (const int descriptor : {signals_, told_pipe_[0]})
    if (descriptor >= 0) ::close(descriptor);
}

std::optional<int> Keeper::run() {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU, SIGPIPE})
    sigaddset(&handled, number);
  ::sigprocmask(SIG_BLOCK, &handled, &signals_before_);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  kills_before_ = machine::out_of_memory_kills();
  std::error_code ignored;
  std::filesystem::remove(dist::status_file(folder_, options_.rank), ignored);
  std::fflush(nullptr);
  const pid_t keeper = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw UserError("cannot start rank {}: {}", options_.rank, std::strerror(errno));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != keeper) ::_exit(1);
    begin_rank();
    return std::nullopt;
  }
  ::setpgid(child, child);
  record_.process = child;
  relay_.become_keeper();
  ::close(told_pipe_[1]);
  ::fcntl(told_pipe_[0], F_SETFL, O_NONBLOCK);
  signals_ = ::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
  write_record(folder_, record_);
  watch_over_it();
  return say_farewell();
}

// In a process group of its own: signals that end the job go to the keeper's group, and the keeper
// decides which to pass on.
void Keeper::begin_rank() {
  ::setpgid(0, 0);
  ::sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  relay_.become_rank();
  ::close(told_pipe_[0]);
  told_pipe_[0] = -1;
  to_keeper = told_pipe_[1];
}

void Keeper::watch_over_it() {
  while (!is_over_) {
    wait_for_something(kTickMilliseconds);
    relay_.pass_on();
    handle_signals();
    handle_orders();
    read_told();
    check_child();
    if (is_over_) break;
    if (must_leave_ || (told_at_ >= 0 && time_.seconds() - told_at_ > kEndingSeconds))
      end_rank(Ending::Stopped, "");
    check_signs_of_life();
    check_job();
  }
  describe_end();
  note_end();
}

void Keeper::wait_for_something(int milliseconds) {
  std::vector<pollfd> polled;
  for (const int descriptor : {signals_, told_pipe_[0], takes_orders_ ? STDIN_FILENO : -1})
    if (descriptor >= 0) polled.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  relay_.add_to(polled);
  ::poll(polled.data(), polled.size(), milliseconds);
}

void Keeper::handle_signals() {
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const auto number = static_cast<int>(info.ssi_signo);
    switch (number) {
      // Slurm's --signal, a closed session, a limit of processor time. Our own mpirun passes
      // SIGUSR1 on, repeatedly, where it takes SIGINT to mean: end it all.
      case SIGUSR1:
      case SIGUSR2:
      case SIGHUP:
      case SIGXCPU:
        if (!stop_wanted_ && !is_over_)
          ::kill(static_cast<pid_t>(record_.process),
                 options_.is_supervised && number == SIGUSR1 ? SIGINT : number);
        stop_wanted_ = true;
        break;
      case SIGINT:
        stop_wanted_ = end_wanted_ = true;
        if (!is_over_) ::kill(static_cast<pid_t>(record_.process), SIGINT);
        break;
      case SIGTERM:
        // From mpirun once another rank has failed; from srun ahead of the end of the job's time.
        if (options_.is_supervised || end_wanted_) must_leave_ = true;
        stop_wanted_ = end_wanted_ = true;
        if (!is_over_ && !must_leave_) ::kill(static_cast<pid_t>(record_.process), SIGTERM);
        break;
      default:
        break;
    }
  }
}

// Sizes of the person's terminal, a line each.
void Keeper::handle_orders() {
  if (!takes_orders_) return;
  std::array<char, 256> buffer;
  pollfd ready{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (::poll(&ready, 1, 0) == 1) {
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got <= 0) {
      takes_orders_ = false;
      return;
    }
    orders_.append(buffer.data(), static_cast<size_t>(got));
  }
  for (size_t end = orders_.find('\n'); end != orders_.npos; end = orders_.find('\n')) {
    if (const auto size = read_terminal_size(orders_.substr(0, end))) relay_.resize(*size);
    orders_.erase(0, end + 1);
  }
}

void Keeper::read_told() {
  std::array<char, 1 << 12> buffer;
  while (told_pipe_[0] >= 0) {
    const ssize_t got = ::read(told_pipe_[0], buffer.data(), buffer.size());
    if (got > 0) {
      told_.append(buffer.data(), static_cast<size_t>(got));
    } else if (got == 0) {
      ::close(told_pipe_[0]);
      told_pipe_[0] = -1;
      if (!told_.empty()) told_at_ = time_.seconds();
    } else if (errno != EINTR) {
      return;
    }
  }
}

void Keeper::check_child() {
  int status = 0;
  while (::waitpid(static_cast<pid_t>(record_.process), &status, WNOHANG | WUNTRACED | WCONTINUED) >
         0) {
    if (WIFSTOPPED(status)) {
      is_stopped_ = true;
      stop_signal_ = WSTOPSIG(status);
    } else if (WIFCONTINUED(status)) {
      is_stopped_ = false;
    } else {
      status_ = status;
      is_over_ = true;
      return;
    }
  }
}

// A rank that joined the others beats in its status page, whatever it computes.
void Keeper::check_signs_of_life() {
  const double now = time_.seconds();
  if (now - touched_at_ >= kTouchSeconds) {
    touch_record(folder_, options_.rank);
    touched_at_ = now;
  }
  const auto status = dist::read_status(folder_, options_.rank);
  const auto beat = status ? static_cast<int64_t>(status->heartbeat * 1e6) : 0;
  const bool beats = beat != last_beat_ ||
                     (!is_stopped_ && (!status || status->state != dist::RankState::Running));
  last_beat_ = beat;
  if (beats) beat_at_ = now;
  const double silence = now - beat_at_;
  if (silence < options_.silence_seconds) return;
  const std::string stopped =
      is_stopped_ ? fmt::format("was suspended by {} and ", signal_text(stop_signal_)) : "";
  end_rank(Ending::Silent, fmt::format("{}did not respond for {:.0f} s", stopped, silence));
}

void Keeper::check_job() {
  if (speaks()) {
    watch_.look();
    if (watch_.is_settled()) end_rank(Ending::Stopped, "");
    return;
  }
  // The supervisor kills this one too, if it can reach it.
  const double now = time_.seconds();
  if (now < job_looked_at_ + kJobSeconds) return;
  job_looked_at_ = now;
  if (is_job_over(folder_, options_.job)) end_rank(Ending::Stopped, "");
}

void Keeper::end_rank(Ending why, const std::string& text) {
  if (is_over_) return;
  record_.ending = why;
  record_.text = text;
  describe_end();  // while the page is as it was
  ::kill(static_cast<pid_t>(record_.process), SIGKILL);
  ::waitpid(static_cast<pid_t>(record_.process), &status_, 0);
  is_over_ = true;
}

void Keeper::describe_end() {
  if (!record_.activity.empty()) return;
  if (const auto status = dist::read_status(folder_, options_.rank))
    record_.activity = activity_of(*status);
}

// The rank's own report counts first, then the keeper's reason for killing it, then its exit
// status.
void Keeper::note_end() {
  relay_.pass_on();
  read_told();
  const Json told = Json::parse(told_, nullptr, false);
  record_.exit_code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  if (told.is_object()) {
    record_.exit_code = told.value("exit_code", 1);
    record_.text = told.value("text", "");
    record_.ending = told.value("lost_another_rank", false) ? Ending::Communication
                                                            : ending_of_exit(record_.exit_code);
    relay_.write_log("snug: " + record_.text + "\n");
  } else if (record_.ending != Ending::Running) {
    // Ended by its keeper.
  } else if (WIFSIGNALED(status_)) {
    record_.ending = Ending::Killed;
    record_.signal = WTERMSIG(status_);
    const std::optional<int64_t> kills = machine::out_of_memory_kills();
    record_.machine_out_of_memory =
        record_.signal == SIGKILL && kills && *kills > kills_before_.value_or(*kills);
    if (record_.signal != SIGKILL && !stop_wanted_)
      record_.text = last_words(log_file(folder_, options_.rank));
  } else {
    record_.ending = record_.exit_code == 0 ? Ending::Done : Ending::Exited;
    if (record_.exit_code != 0) record_.text = last_words(log_file(folder_, options_.rank));
  }
  if (record_.ending == Ending::Silent) relay_.write_log("snug: " + record_.text + "\n");
  if (write_record(folder_, record_) || exit_code_of(record_) == 0) return;
  // Tell the user all the same.
  Records alone(static_cast<size_t>(options_.size));
  alone[static_cast<size_t>(options_.rank)] = record_;
  std::fprintf(stderr, "snug: %s\n", judge(alone, options_.out_dir, stop_wanted_).message.c_str());
}

// Returns the exit code. The keeper of a failed rank lingers; without a supervisor, rank 0's keeper
// waits for the others and prints how the run ended.
int Keeper::say_farewell() {
  const int own = exit_code_of(record_);
  const double start = time_.seconds();
  const auto passed = [&](double seconds) { return time_.seconds() - start >= seconds; };
  const auto wait = [&] {
    wait_for_something(kTickMilliseconds);
    handle_signals();
  };
  if (!speaks()) {
    while (own != 0 && !must_leave_ && !passed(kLingerSeconds)) wait();
    return own;
  }
  watch_.look_now();
  while (!all_done(watch_.records()) && !watch_.is_settled() && !must_leave_ &&
         !passed(kFarewellSeconds)) {
    wait();
    watch_.look();
  }
  watch_.look_now();
  const Verdict verdict = judge(watch_.records(), options_.out_dir, stop_wanted_);
  if (verdict.exit_code == 0) return own;
  write_job_end(folder_, options_.job);
  std::fprintf(stderr, "snug: %s\n", verdict.message.c_str());
  run_json_.amend(verdict);
  return verdict.exit_code;
}

}  // namespace

std::optional<int> keep_rank(const KeeperOptions& options) { return Keeper(options).run(); }

bool tell_keeper(int exit_code, const std::string& text, bool lost_another_rank) {
  if (to_keeper < 0) return false;
  const Json told = {
      {"exit_code", exit_code}, {"text", text}, {"lost_another_rank", lost_another_rank}};
  const bool heard =
      write_all(to_keeper, told.dump(-1, ' ', false, Json::error_handler_t::replace));
  ::close(to_keeper);
  to_keeper = -1;
  return heard;
}

}  // namespace snug::launch
