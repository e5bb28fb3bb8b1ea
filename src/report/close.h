// What is said of a run that fits, but with little to spare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace snug::report {

// With a smaller share of the memory left it is close: what is not counted, such as NCCL's buffers,
// may take that.
inline constexpr double kClose = 0.05;

// "close: 0.6 % left" of `available` bytes; empty where more is left, or nothing.
inline std::string close_text(int64_t needed, int64_t available) {
  if (available <= 0) return "";
  const double left = 1 - static_cast<double>(needed) / static_cast<double>(available);
  return left >= 0 && left < kClose ? fmt::format("close: {:.1f} % left", 100 * left) : "";
}

}  // namespace snug::report
