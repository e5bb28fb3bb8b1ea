// Where the time goes between the command and the first step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report/run_record.h"

namespace snug::train {

class StartupClock {
 public:
  // What happened since the last call, or since the program began, was this stage.
  void end_stage(const char* name);
  void begin_first_step() { record_.first_step_begun = last_; }
  // Later calls change nothing.
  void end_step();

  const report::StartupRecord& record() const { return record_; }

 private:
  report::StartupRecord record_;
  double last_ = 0;
};

}  // namespace snug::train
