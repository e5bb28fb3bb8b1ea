// SPDX-License-Identifier: Apache-2.0
#include "train/out_dir/last_write.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "core/dist/agreement.h"
#include "train/interrupt.h"

namespace snug::train {
namespace {

namespace fs = std::filesystem;

// What rank 0 tells the others: a letter, and the folder that comes next.
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
          "The trained model cannot be written: {}\nFree some space: snug tries again every {:.0f} "
          "s for {:.0f} minutes; Ctrl-C gives up. {}",
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

// A job in the background has a terminal and nobody at it.
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

}  // namespace snug::train
