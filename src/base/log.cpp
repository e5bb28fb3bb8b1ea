// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>

namespace snug {
namespace {
std::atomic<bool> verbose{false};
std::mutex mutex;
std::set<std::string> told;
}  // namespace

void set_verbose(bool on) { verbose = on; }
bool is_verbose() { return verbose; }

void log_warning(const std::string& text) {
  const std::lock_guard lock(mutex);
  if (told.insert(text).second) std::fprintf(stderr, "warning: %s\n", text.c_str());
}

void log_detail(const std::string& text) {
  const std::lock_guard lock(mutex);
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace snug
