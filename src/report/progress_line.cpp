// SPDX-License-Identifier: Apache-2.0
#include "report/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace snug::report {

ProgressLine::ProgressLine(std::string what, size_t total, bool wanted)
    : what_(std::move(what)),
      total_(total),
      shown_(wanted && ::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

ProgressLine::~ProgressLine() { clear(); }

double ProgressLine::seconds() const {
  const auto passed = std::chrono::steady_clock::now() - start_;
  return std::max(1e-9, std::chrono::duration<double>(passed).count());
}

void ProgressLine::show(size_t done) const {
  if (!shown_ || done == 0) return;
  const double rate = static_cast<double>(done) / seconds();
  if (total_ == 0) {
    if (seconds() > 1)
      std::fprintf(stderr, "\r\033[K%zu %s  %.1f/s  %.0f s", done, what_.c_str(), rate, seconds());
    return;
  }
  std::fprintf(stderr, "\r\033[K%zu of %zu %s  %.1f/s  %.0f s left", done, total_, what_.c_str(),
               rate, static_cast<double>(total_ - done) / rate);
}

void ProgressLine::clear() const {
  if (shown_) std::fputs("\r\033[K", stderr);
}

}  // namespace snug::report
