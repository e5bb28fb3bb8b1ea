// Progress of a download: bytes, totals and rate, and the line that shows them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace snug::hub {

struct Progress {
  std::string file;
  int64_t file_bytes = 0;
  int64_t file_total = 0;
  int64_t all_bytes = 0;
  int64_t all_total = 0;
  double bytes_per_second = 0;
};
using ShowProgress = std::function<void(const Progress&)>;

// Reports ten times a second at most, and at the end.
class Meter {
 public:
  // `show` may be empty; it must outlive the meter.
  Meter(const ShowProgress& show, int64_t all_total);

  void begin(const std::string& file, int64_t file_total);
  // `received` counts for the rate; bytes already on disk do not.
  void at(int64_t file_bytes, int64_t received);
  void end();

 private:
  void rate(double now);
  void send();

  const ShowProgress& show_;
  Progress now_;
  int64_t done_ = 0;
  int64_t unrated_ = 0;
  double rated_at_;
  double last_report_ = -1e9;
};

// Download progress on standard error: one line updated in place on a terminal, occasional lines in
// a file or pipe.
class ProgressLine {
 public:
  explicit ProgressLine(double seconds_between_lines = 10);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const Progress& progress);
  void end();  // makes room for other words

 private:
  bool redraws_;
  bool is_drawn_ = false;
  double seconds_between_lines_;
  double last_line_;
};

}  // namespace snug::hub
