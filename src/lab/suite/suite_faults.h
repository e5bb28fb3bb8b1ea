// What a suite's file says wrong, all of it: collected with lines while the file is read, thrown
// once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace snug::lab {

class Faults {
 public:
  // `file` stands in front of every line's number.
  explicit Faults(std::string file) : file_(std::move(file)) {}

  // The same words about the same line are kept once: one list may be read for many rows.
  void add(int line, std::string text);
  bool empty() const { return faults_.empty(); }
  // Throws one UserError with all of them by line; nothing happens when there is none.
  void throw_all() const;

 private:
  std::string file_;
  std::vector<std::pair<int, std::string>> faults_;
};

}  // namespace snug::lab
