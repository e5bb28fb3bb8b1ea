// Little shell scripts that stand in for the program, and processes to be watched.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

namespace snug::test {

inline std::filesystem::path write_script(const std::filesystem::path& path,
                                          const std::string& body) {
  {
    std::ofstream out(path);
    out << "#!/bin/sh\n" << body << "\n";
  }
  ::chmod(path.c_str(), 0755);
  return path;
}

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// One that has ended and that nobody has waited for yet does not run.
inline bool is_running(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t at = text.rfind(')');
  return at != text.npos && at + 2 < text.size() && text[at + 2] != 'Z';
}

// Asks again until it is so, for a minute at most.
inline bool comes_true(const std::function<bool()>& is_so) {
  for (int i = 0; i < 6000; ++i) {
    if (is_so()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// The number that a script writes there; it may not have come to it yet.
inline pid_t read_process(const std::filesystem::path& path) {
  pid_t process = 0;
  comes_true([&] { return static_cast<bool>(std::ifstream(path) >> process); });
  return process;
}

}  // namespace snug::test
