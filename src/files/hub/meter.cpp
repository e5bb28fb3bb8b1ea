// SPDX-License-Identifier: Apache-2.0
#include "files/hub/meter.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/terminal.h"

namespace snug::hub {
namespace {

constexpr double kReportSeconds = 0.1;
constexpr double kRateSeconds = 5;  // the rate is a mean over about so long

}  // namespace

Meter::Meter(const ShowProgress& show, int64_t all_total)
    : show_(show), rated_at_(monotonic_seconds()) {
  now_.all_total = all_total;
}

void Meter::begin(const std::string& file, int64_t file_total) {
  done_ += now_.file_bytes;
  now_.file = file;
  now_.file_bytes = 0;
  now_.file_total = std::max<int64_t>(file_total, 0);
}

void Meter::at(int64_t file_bytes, int64_t received) {
  now_.file_bytes = file_bytes;
  now_.all_bytes = done_ + file_bytes;
  unrated_ += received;
  const double now = monotonic_seconds();
  if (now - last_report_ < kReportSeconds) return;
  rate(now);
  send();
}

void Meter::end() {
  now_.all_bytes = done_ + now_.file_bytes;
  now_.all_total = std::max(now_.all_total, now_.all_bytes);
  send();
}

void Meter::rate(double now) {
  const double elapsed = now - rated_at_;
  if (elapsed < kReportSeconds) return;
  const double share =
      elapsed > kRateSeconds || now_.bytes_per_second == 0 ? 1 : elapsed / kRateSeconds;
  now_.bytes_per_second +=
      share * (static_cast<double>(unrated_) / elapsed - now_.bytes_per_second);
  unrated_ = 0;
  rated_at_ = now;
}

void Meter::send() {
  last_report_ = monotonic_seconds();
  if (show_) show_(now_);
}

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
