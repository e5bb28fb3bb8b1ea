// An axis of a chart: from values to pixels, linear or logarithmic, with round ticks. Shared by the
// charts of this folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace snug::report {

// Finite and of a size that fits on an axis.
bool is_drawable(double value);

struct Axis {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  double from = 0, to = 1;   // pixels
  bool logarithmic = false;  // values are then positive

  bool is_empty() const { return low > high; }
  void include(double value);
  // Room on both sides of a constant, so that the scale is never 0.
  void widen();
  double pixel(double value) const;
};

// Round steps (1, 2 or 5 times a power of ten) that give about `count` ticks; on a logarithmic axis
// powers of two or of ten, whichever fits.
std::vector<double> ticks(const Axis& axis, int count);

// "12,000", "0.25".
std::string tick_text(double value);

}  // namespace snug::report
