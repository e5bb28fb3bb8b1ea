// Messages on standard error: warnings always, details with --verbose.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>

namespace snug {

void set_verbose(bool on);
bool is_verbose();

// Receives whole messages, newline included, instead of standard error.
using LogSink = std::function<void(const std::string&)>;

// Sends messages to `sink` while it lives, then to the previous destination. Calls are serialized;
// a sink must not log.
class LogSinkGuard {
 public:
  explicit LogSinkGuard(LogSink sink);
  ~LogSinkGuard();
  LogSinkGuard(const LogSinkGuard&) = delete;
  LogSinkGuard& operator=(const LogSinkGuard&) = delete;

 private:
  LogSink before_;
};

// "warning: …" once per distinct text, so that a loop cannot flood the terminal.
void log_warning(const std::string& text);
void log_detail(const std::string& text);

// All warnings so far, each a line, for a log that begins after them.
std::string warnings_so_far();

template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  log_warning(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void detail(fmt::format_string<Args...> format, Args&&... args) {
  if (is_verbose()) log_detail(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace snug
