// The part of the picture that shows memory: a bar by category, now and at the peak, against the
// budget and the peak that was planned; and the figures.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "report/live_status.h"
#include "watch/monitor/bars.h"

namespace snug::monitor {

class MemoryView {
 public:
  explicit MemoryView(const report::LiveState& live) : live_(live) {}

  // "1.52 GiB of 2.00 GiB, peak 1.91 GiB, planned 1.90 GiB"; what does not fit is left out.
  std::string sentence(size_t columns) const;
  // Bytes that a full bar stands for: the budget, or without one the largest of what is shown.
  int64_t scale() const;
  std::string bar_now(size_t columns, const Style& style) const;
  std::string bar_at_peak(size_t columns, const Style& style) const;
  // A line a category that has anything, now or at the peak.
  std::vector<std::string> table(size_t columns, const Style& style) const;

 private:
  std::vector<Part> parts(const std::map<std::string, int64_t>& bytes) const;
  std::vector<std::string> categories() const;

  const report::LiveState& live_;
};

}  // namespace snug::monitor
