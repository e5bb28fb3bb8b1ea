// SPDX-License-Identifier: Apache-2.0
#include "report/log_file.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/uninterrupted.h"

namespace snug::report {

LogFile::~LogFile() {
  if (file_ >= 0) ::close(file_);
}

void LogFile::write(std::string_view text) {
  const std::lock_guard lock(mutex_);
  unwritten_ += text;
  if (!text.ends_with('\n')) unwritten_ += '\n';
  flush();
}

void LogFile::open(const std::filesystem::path& path, LogStart start) {
  const std::lock_guard lock(mutex_);
  path_ = path;
  start_ = start;
  flush();
}

void LogFile::write_end(const std::string& outcome, const std::string& reason) {
  if (!reason.empty()) write("snug: " + reason);
  write(fmt::format("{}  ended: {}", time_now(), outcome));
}

std::string LogFile::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

bool LogFile::open_file() {
  if (file_ >= 0) return true;
  constexpr mode_t kMode = 0666;
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC;
  file_ = uninterrupted([&] {
    return ::open(path_.c_str(), flags | (start_ == LogStart::Anew ? O_TRUNC : 0), kMode);
  });
  if (file_ < 0) return false;
  const off_t size = ::lseek(file_, 0, SEEK_END);
  char last = '\n';
  if (size > 0 && uninterrupted([&] { return ::pread(file_, &last, 1, size - 1); }) == 1 &&
      last != '\n')
    unwritten_.insert(0, "\n");
  return true;
}

void LogFile::flush() {
  if (path_.empty()) return;
  fault_.clear();
  if (!open_file()) {
    fault_ = std::strerror(errno);
    return;
  }
  while (!unwritten_.empty()) {
    const ssize_t written =
        uninterrupted([&] { return ::write(file_, unwritten_.data(), unwritten_.size()); });
    if (written < 0) {
      fault_ = std::strerror(errno);
      return;
    }
    unwritten_.erase(0, static_cast<size_t>(written));
  }
}

std::string time_now() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)));
}

}  // namespace snug::report
