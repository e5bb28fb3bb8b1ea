// The progress over many things, on one line of standard error that is rewritten in place. Shows
// nothing if standard error is not a terminal.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace snug::report {

class ProgressLine {
 public:
  // `what`: "pictures", for example. `total` 0: not known, and shown from the second second on.
  ProgressLine(std::string what, size_t total, bool wanted);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(size_t done) const;
  void clear() const;  // before other output; the next show() draws it again
  double seconds() const;

 private:
  std::string what_;
  size_t total_;
  bool shown_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace snug::report
