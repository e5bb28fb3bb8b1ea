// How far many pictures are, on one line of standard error that is rewritten in place. Nothing
// where standard error is no terminal, or the terminal shows the results themselves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

namespace snug::use {

class ProgressLine {
 public:
  ProgressLine(size_t total, bool wanted);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(size_t done) const;
  void clear() const;  // for other words; the next show() brings it back
  double seconds() const;

 private:
  size_t total_;
  bool shown_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace snug::use
