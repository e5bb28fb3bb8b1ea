// SPDX-License-Identifier: Apache-2.0
#include "train/out_dir/full_disk.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "base/bytes.h"
#include "base/error.h"
#include "core/dist/agreement.h"

namespace snug::train {
namespace {

// Those that are left when all are written, beyond those that were there.
int64_t left_at_the_end(const DiskNeed& need) {
  const int64_t all = need.num_there + need.num_checkpoints;
  return std::max<int64_t>(0, (need.keep ? std::min(all, *need.keep) : all) - need.num_there);
}

// With how many kept it would fit; 0: with none.
int64_t keep_that_fits(DiskNeed need, int64_t free_bytes) {
  need.keep = most_checkpoints(need);
  while (*need.keep > 0 && most_bytes(need) > free_bytes) --*need.keep;
  return *need.keep;
}

}  // namespace

int64_t checkpoints_to_write(const recipe::Recipe& recipe, int64_t step, int64_t last_step) {
  const int64_t interval = recipe.train.save_interval.value_or(0);
  return interval <= 0 ? 0 : std::max<int64_t>(0, last_step / interval - step / interval);
}

int64_t most_checkpoints(const DiskNeed& need) {
  if (need.num_checkpoints == 0) return 0;
  const bool one_goes = need.keep && need.num_there + need.num_checkpoints > *need.keep;
  return left_at_the_end(need) + (one_goes ? 1 : 0);
}

// The model is written when the last checkpoint is whole and older ones are gone; the best one so
// far is there all the time.
int64_t most_bytes(const DiskNeed& need) {
  const int64_t best = need.keeps_best ? need.model_bytes : 0;
  return best + std::max(most_checkpoints(need) * need.checkpoint_bytes,
                         left_at_the_end(need) * need.checkpoint_bytes + need.model_bytes);
}

bool has_ample_room(const DiskNeed& need, int64_t free_bytes) {
  return need.checkpoint_bytes <= (free_bytes - most_bytes(need)) / 10;
}

std::string check_room(const DiskNeed& need, int64_t free_bytes, const std::string& out_dir) {
  if (need.model_bytes > free_bytes)
    throw UserError(
        "the disk of {} has no room for the trained model: it takes {}, and {} is free; free some "
        "space, choose another --out_dir, or do not write the model: --train.save_model false",
        out_dir, format_bytes(need.model_bytes), format_bytes(free_bytes));
  if (need.num_checkpoints == 0 || most_bytes(need) <= free_bytes) return "";
  const int64_t most = most_checkpoints(need), keep = keep_that_fits(need, free_bytes);
  const std::string model =
      need.model_bytes > 0 ? fmt::format(" and the model of {}", format_bytes(need.model_bytes))
                           : "";
  return fmt::format(
      "this run will fill the disk of {}: {} checkpoint{} of {}{} need {}, and {} is free; {}write "
      "none with --train.save_interval none, or choose another --out_dir",
      out_dir, most, most == 1 ? "" : "s", format_bytes(need.checkpoint_bytes), model,
      format_bytes(most_bytes(need)), format_bytes(free_bytes),
      keep > 0 ? fmt::format("keep fewer with --train.keep_checkpoints {}, ", keep) : "");
}

namespace {

namespace fs = std::filesystem;

// The messages of rank 0 to the others: a letter, followed by the next folder.
constexpr char kTry = 'T', kGiveUp = 'G', kStop = 'S';

constexpr int kLookMilliseconds = 200;

fs::path without_tilde(const std::string& answer) {
  const char* home = std::getenv("HOME");
  if (!answer.starts_with("~/") || home == nullptr) return answer;
  return fs::path(home) / answer.substr(2);
}

bool is_empty_or_new(const fs::path& folder) {
  std::error_code error;
  return !fs::exists(folder, error) || (fs::is_directory(folder, error) && fs::is_empty(folder));
}

class Attempts {
 public:
  explicit Attempts(const LastWrite& wish) : wish_(wish), folder_(wish.folder) {}

  fs::path run() {
    std::optional<InterruptGuard> interrupt;
    while (true) {
      std::string reason;
      try {
        wish_.write(folder_);
        return folder_;
      } catch (const UserError& error) {
        reason = error.what();
      }
      if (!interrupt) interrupt.emplace();
      const std::string next = dist::agree(
          wish_.ranks, [&] { return is_first() ? after_failure(reason) : std::string(); })[0];
      if (next[0] == kGiveUp) throw UserError("{}\n{}", reason, next.substr(1));
      if (next[0] == kStop)
        throw Interrupted(fmt::format("stopped on request before the model was written: {}\n{}",
                                      reason, next.substr(1)));
      folder_ = next.substr(1);
    }
  }

 private:
  bool is_first() const { return wish_.ranks == nullptr || wish_.ranks->rank() == 0; }

  std::string after_failure(const std::string& reason) {
    return wish_.ask ? ask(reason) : wait(reason);
  }

  std::string ask(const std::string& reason) {
    wish_.say(
        fmt::format("The trained model cannot be written: {}\n{}", reason, wish_.what_remains()));
    while (true) {
      const auto answer = wish_.ask(fmt::format(
          "Another folder (Enter tries {} again, Ctrl-C gives up): ", folder_.string()));
      if (!answer) return kStop + wish_.what_remains();
      if (answer->empty()) return kTry + folder_.string();
      const fs::path folder = without_tilde(*answer);
      if (is_empty_or_new(folder)) return kTry + folder.string();
      wish_.say(fmt::format("{} exists already; give a new or empty folder", folder.string()));
    }
  }

  std::string wait(const std::string& reason) {
    if (waited_ == 0)
      wish_.say(fmt::format(
          "The trained model cannot be written: {}\nFree some space, or mount the disk again: snug "
          "tries again every {:.0f} s for {:.0f} minutes; Ctrl-C gives up. {}",

          reason, wish_.interval_seconds, wish_.patience_seconds / 60, wish_.what_remains()));
    if (waited_ >= wish_.patience_seconds) return kGiveUp + wish_.what_remains();
    waited_ += wish_.interval_seconds;
    return wish_.wait(wish_.interval_seconds) ? kTry + folder_.string()
                                              : kStop + wish_.what_remains();
  }

  const LastWrite& wish_;
  fs::path folder_;
  double waited_ = 0;
};

}  // namespace

fs::path write_at_last(const LastWrite& wish) { return Attempts(wish).run(); }

// A job in the background cannot ask.
bool has_terminal() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1 &&
         ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

std::optional<std::string> ask_at_terminal(const std::string& question) {
  std::fputs(question.c_str(), stderr);
  std::fflush(stderr);
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (::poll(&input, 1, kLookMilliseconds) <= 0)
    if (InterruptGuard::requested()) return std::nullopt;
  std::array<char, 4096> line{};
  const ssize_t got = ::read(STDIN_FILENO, line.data(), line.size());
  if (got <= 0) return std::nullopt;
  std::string answer(line.data(), static_cast<size_t>(got));
  answer.erase(answer.find_last_not_of(" \t\r\n") + 1);
  answer.erase(0, answer.find_first_not_of(" \t"));
  return answer;
}

bool wait_for_seconds(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    if (InterruptGuard::requested()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookMilliseconds));
  }
  return !InterruptGuard::requested();
}

namespace {

volatile std::sig_atomic_t stop_requested = 0;
timespec first_request{};

// One wish may arrive twice at once: from srun, and from the process that watches over this one.
constexpr double kSameWishSeconds = 1;

// What a closed ssh session, Slurm's --signal and a limit of processor time send: once, or many
// times before the end, which none of them means to hasten.
constexpr int kWarnings[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
volatile std::sig_atomic_t was_asked = 0;

void on_warning(int) { stop_requested = 1; }

void on_signal(int signal_number) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  stop_requested = 1;
  if (was_asked == 0) {
    first_request = now;
    was_asked = 1;
    return;
  }
  const double since = static_cast<double>(now.tv_sec - first_request.tv_sec) +
                       1e-9 * static_cast<double>(now.tv_nsec - first_request.tv_nsec);
  if (since < kSameWishSeconds) return;
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  stop_requested = 0;
  was_asked = 0;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  // What is ignored, as SIGHUP under nohup, stays so.
  for (const int number : kWarnings)
    if (std::signal(number, on_warning) == SIG_IGN) std::signal(number, SIG_IGN);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  for (const int number : kWarnings)
    if (std::signal(number, SIG_DFL) == SIG_IGN) std::signal(number, SIG_IGN);
}

bool InterruptGuard::requested() { return stop_requested != 0; }

}  // namespace snug::train
