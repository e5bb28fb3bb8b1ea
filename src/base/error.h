// The kinds of failure, one base. Libraries throw; only cli catches, prints and exits. A message
// says what (value found, value expected), where (file and key, tensor, unit) and how to fix it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace snug {

class Error : public std::runtime_error {
 public:
  Error(const std::string& what, int exit_code) : std::runtime_error(what), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// The user's recipe, data or files: exit code 2, shown without a stack.
class UserError : public Error {
 public:
  template <class... Args>
  explicit UserError(fmt::format_string<Args...> format, Args&&... args)
      : Error(fmt::format(format, std::forward<Args>(args)...), 2) {}
};

// Device or host memory, or the memory budget, is exhausted: exit code 3.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& what) : Error(what, 3) {}
};

// Stopped by the user (Ctrl-C, SIGTERM): exit code 130, as in shells.
class Interrupted : public Error {
 public:
  static constexpr int kExitCode = 130;
  explicit Interrupted(const std::string& what) : Error(what, kExitCode) {}
};

// A process of a run of several is gone or hangs, or the network between them failed: exit code 1,
// since another run of the same recipe may succeed.
class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& what) : Error(what, 1) {}
};

// A bug: exit code 1, with a request to report it.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& what) : Error(what, 1) {}
};

[[noreturn]] void fail_check(const char* file, int line, const char* condition,
                             const std::string& message);

}  // namespace snug

// Checks an invariant that must hold whatever the user does; always on. SNUG_CHECK(rows > 0, "unit
// {} got {} rows", name, rows);
#define SNUG_CHECK(condition, ...)                                                     \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      ::snug::fail_check(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
  } while (false)
