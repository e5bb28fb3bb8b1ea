// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "base/text.h"

namespace snug {
namespace {
std::atomic<bool> verbose{false};
std::mutex mutex;
std::set<std::string> told;
std::string warnings;
LogSink sink;  // empty: standard error

// With the mutex held.
void put(const std::string& message) {
  if (sink)
    sink(message);
  else
    std::fputs(message.c_str(), stderr);
}
}  // namespace

LogSinkGuard::LogSinkGuard(LogSink wanted) {
  const std::lock_guard lock(mutex);
  before_ = std::exchange(sink, std::move(wanted));
}

LogSinkGuard::~LogSinkGuard() {
  const std::lock_guard lock(mutex);
  sink = std::move(before_);
}

void set_verbose(bool on) { verbose = on; }
bool is_verbose() { return verbose; }

void log_warning(const std::string& message) {
  const std::string text = printable_lines(message);
  const std::lock_guard lock(mutex);
  if (!told.insert(text).second) return;
  warnings += "warning: " + text + "\n";
  put("warning: " + text + "\n");
}

std::string warnings_so_far() {
  const std::lock_guard lock(mutex);
  return warnings;
}

void log_detail(const std::string& text) {
  const std::lock_guard lock(mutex);
  put(text + "\n");
}

}  // namespace snug
