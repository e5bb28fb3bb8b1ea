// SPDX-License-Identifier: Apache-2.0
#include "files/hub/progress_line.h"

#include <unistd.h>

#include <cstdio>

#include "base/clock.h"
#include "base/terminal.h"

namespace snug::hub {

ProgressLine::ProgressLine(double seconds_between_lines)
    : redraws_(can_draw(STDERR_FILENO)),
      seconds_between_lines_(seconds_between_lines),
      last_line_(monotonic_seconds()) {}

ProgressLine::~ProgressLine() { end(); }

void ProgressLine::end() {
  if (is_drawn_) std::fputs("\r\033[K", stderr);
  is_drawn_ = false;
}

void ProgressLine::show(const Progress& now) {
  if (!redraws_ && monotonic_seconds() - last_line_ < seconds_between_lines_) return;
  last_line_ = monotonic_seconds();
  is_drawn_ = redraws_;
  std::fprintf(stderr, "%s%s  %.0f of %.0f MB  %.1f MB/s%s", redraws_ ? "\r\033[K" : "",
               now.file.c_str(), static_cast<double>(now.all_bytes) / 1e6,
               static_cast<double>(now.all_total) / 1e6, now.bytes_per_second / 1e6,
               redraws_ ? "" : "\n");
  std::fflush(stderr);
}

}  // namespace snug::hub
