// The output of a row's process: the pipes it comes through, the file it is kept in, and its last
// words.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace snug::lab {

constexpr size_t kMostOutput = size_t{64} << 20;  // bytes that are kept

// Keeps the first kMostOutput bytes of a child's output in a file, and a note if there was more. On
// a full disk it keeps reading: the child must not block on a full pipe.
class RowOutput {
 public:
  // An empty path keeps nothing. Throws UserError if the file cannot be made.
  explicit RowOutput(const std::filesystem::path& path);
  RowOutput(const RowOutput&) = delete;
  RowOutput& operator=(const RowOutput&) = delete;
  ~RowOutput();

  void write(std::string_view text);
  // Why the file is incomplete; empty if it is not.
  const std::string& fault() const { return fault_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  size_t written_ = 0;
  std::string fault_;
};

// Closed in a child by exec; reading never blocks.
struct Pipe {
  int reader = -1, writer = -1;  // -1: closed

  Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe();
  static void close(int& end);
};

// The end of a program's error output: from the last line that starts with "snug: " on, else its
// last lines.
std::string last_words_of(const std::string& errors);

}  // namespace snug::lab
