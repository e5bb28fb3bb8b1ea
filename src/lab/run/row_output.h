// What a row's process says: the file that it is kept in, the pipes that it comes by, and the last
// of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace snug::lab {

constexpr size_t kMostOutput = size_t{64} << 20;  // bytes of it that are kept

// Where a child's output goes: the start of it, and the news that there was more. A disk that is
// full must not stop the child by a pipe that nobody reads.
class RowOutput {
 public:
  // Empty: nowhere. Throws UserError where the file cannot be made.
  explicit RowOutput(const std::filesystem::path& path);
  RowOutput(const RowOutput&) = delete;
  RowOutput& operator=(const RowOutput&) = delete;
  ~RowOutput();

  void write(std::string_view text);
  // Why it is not whole; empty: it is.
  const std::string& fault() const { return fault_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  size_t written_ = 0;
  std::string fault_;
};

// Not inherited by a child that execs; its reader never waits.
struct Pipe {
  int reader = -1, writer = -1;  // -1: closed

  Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe();
  static void close(int& end);
};

// The last words of a text that a terminal would have shown: from the last "snug: " at the start of
// a line on, else its last lines.
std::string last_words_of(const std::string& errors);

}  // namespace snug::lab
