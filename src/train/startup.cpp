// SPDX-License-Identifier: Apache-2.0
#include "train/startup.h"

#include "base/program.h"

namespace snug::train {

void StartupClock::end_stage(const char* name) {
  const double now = seconds_since_program_start();
  record_.stages.emplace_back(name, now - last_);
  last_ = now;
}

void StartupClock::end_step() {
  if (record_.first_step_ended == 0) record_.first_step_ended = seconds_since_program_start();
}

}  // namespace snug::train
