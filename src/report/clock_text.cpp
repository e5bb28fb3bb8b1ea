// SPDX-License-Identifier: Apache-2.0
#include "report/clock_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace snug::report {

std::string clock_text(double seconds) {
  const auto s = static_cast<int64_t>(std::isfinite(seconds) ? std::clamp(seconds, 0.0, 1e9) : 0);
  if (s >= 86400) return fmt::format("{}d {:02}:{:02}", s / 86400, s / 3600 % 24, s / 60 % 60);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace snug::report
