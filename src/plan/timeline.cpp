// SPDX-License-Identifier: Apache-2.0
#include "plan/timeline.h"

namespace snug::plan {

TimelineRecorder::TimelineRecorder(memory::Ledger& ledger) : ledger_(ledger) {
  ledger_.observe([this](const memory::Change& change) {
    if (change.bytes != 0) events_.push_back({change.serial, change.bytes});
    const bool pass =
        change.phase == memory::Phase::Forward || change.phase == memory::Phase::Backward;
    if (pass && change.bytes > 0) bytes_written_ += change.bytes;
    // Before the first step nobody runs: that is one stretch, whosever memory is allocated.
    const int32_t unit = change.phase == memory::Phase::Setup ? 0 : change.unit;
    const bool same = !stretches_.empty() && stretches_.back().phase == change.phase &&
                      stretches_.back().unit == unit;
    if (!same)
      stretches_.push_back({change.phase, unit, change.allocated, *change.live});
    else if (change.allocated >= stretches_.back().allocated)
      stretches_.back() = {change.phase, unit, change.allocated, *change.live};
  });
}

TimelineRecorder::~TimelineRecorder() { ledger_.observe({}); }

std::vector<Moment> TimelineRecorder::moments() const {
  std::vector<Moment> moments;
  for (const Stretch& s : stretches_)
    moments.push_back({s.phase, memory::unit_name(s.unit), s.allocated, s.live});
  return moments;
}

}  // namespace snug::plan
