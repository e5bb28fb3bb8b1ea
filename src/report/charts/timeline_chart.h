// Memory over one optimizer step, stacked by category: a drawing that takes any width, with its
// scale, phases and limit as text beside it, which keeps its size on a phone. What ran at a moment
// shows where the pointer rests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace snug::report {

struct PlanMoment {
  std::string label;  // "block 3, forward"
  std::string phase;  // "forward": stretches of one phase are marked below the chart
  std::vector<int64_t> by_category;
};

struct TimelineChart {
  std::string name = "memory over one step, by category";  // for those who cannot see it
  std::string limit_name = "the device has";
  std::vector<std::string> categories;
  std::vector<PlanMoment> moments;
  int64_t limit_bytes = 0;  // 0: none
};

// A page that has it needs assets::timeline_css and says the colours: --k0 … --k7, --fg, --mu,
// --line, --over (the limit) and --paper (behind the drawing).
std::string timeline_chart(const TimelineChart& chart);

int64_t total(const PlanMoment& moment);

// At most `count` moments, in order, each the highest of those that it stands for; phases stay
// apart.
std::vector<PlanMoment> thinned(const std::vector<PlanMoment>& moments, size_t count);

}  // namespace snug::report
