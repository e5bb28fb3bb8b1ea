// Download progress on standard error: one line updated in place on a terminal, occasional lines in
// a file or pipe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/hub/meter.h"

namespace snug::hub {

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
