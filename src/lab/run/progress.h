// The progress of a lab on standard error: a line for each row that has ended, and in a terminal
// two lines that are redrawn, one for the suite and one for the running row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>

#include "base/log.h"
#include "lab/result.h"
#include "report/live_status.h"

namespace snug::lab {

// The state of the running row.
struct RowStatus {
  std::string id;
  std::string doing;                      // planning, training, …
  std::optional<report::LiveState> live;  // of rank 0, once it has written one
};

// "[3/14] ls03-tiny-accumulate  ok   24.60 GiB of 79.15 GiB, litgpt 61.20 GiB, 0.51 s/step".
std::string row_line(int number, int total, size_t id_columns, const RowResult& result,
                     bool is_kept);

// The two lines, each at most `width` columns. Negative `seconds_left`: not known.
std::string suite_bar(const std::string& suite, int done, int total, double seconds_left,
                      int width);
std::string row_bar(const RowStatus& status, int width);

// Thread-safe: plans of several rows may warn while another row ends.
class Progress {
 public:
  Progress(std::FILE* out, bool is_tty);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `says_rows`: a line for each that ends; else the table that follows is enough.
  void begin_suite(const std::string& name, int total, size_t id_columns, bool says_rows = true);
  // A search finds out as it goes how many rows it has.
  void add_rows(int more);
  void show(const RowStatus& status);
  void row_ended(const RowResult& result, bool is_kept);
  void say(const std::string& text);
  void end_suite();

 private:
  // With the mutex held.
  void print(const std::string& text);
  void erase();
  void draw();
  double seconds_left() const;

  std::mutex mutex_;  // of all below
  std::FILE* out_;
  bool is_tty_;
  bool is_drawn_ = false, says_rows_ = true;
  std::string suite_;
  int total_ = 0, ended_ = 0, newly_ended_ = 0;
  size_t id_columns_ = 0;
  std::chrono::steady_clock::time_point begun_, last_ended_;
  RowStatus status_;
  std::optional<LogSinkGuard> messages_;
};

}  // namespace snug::lab
