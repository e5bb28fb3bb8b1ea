// SPDX-License-Identifier: Apache-2.0
#include "report/charts/chart_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace snug::report {
namespace {

constexpr double kLargest = 1e30;  // beyond it a value is shown as missing, like an infinity

std::vector<double> linear_ticks(const Axis& axis, int count) {
  const double raw = (axis.high - axis.low) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double ratio = raw / power;
  const double step = power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
  std::vector<double> out;
  const double first = std::ceil(axis.low / step - 1e-9);
  for (double k = first; k * step <= axis.high + 1e-9 * step && out.size() < 50; ++k)
    out.push_back(k * step == 0 ? 0 : k * step);
  return out;
}

// 1, 2 and 5 of each decade; over many decades their powers of ten alone.
std::vector<double> logarithmic_ticks(const Axis& axis, int count) {
  const double decades = std::log10(axis.high / axis.low);
  std::vector<double> digits{1, 2, 5};
  if (3 * decades > 1.5 * count) digits = {1};
  std::vector<double> out;
  for (double power = std::floor(std::log10(axis.low)); power <= std::log10(axis.high); ++power)
    for (const double digit : digits) {
      const double value = digit * std::pow(10, power);
      if (value >= axis.low * (1 - 1e-9) && value <= axis.high * (1 + 1e-9)) out.push_back(value);
    }
  return out;
}

}  // namespace

bool is_drawable(double value) { return std::isfinite(value) && std::abs(value) < kLargest; }

void Axis::include(double value) {
  low = std::min(low, value);
  high = std::max(high, value);
}

void Axis::widen() {
  if (high - low > 1e-9 * std::abs(high)) return;
  const double room = high == 0 ? 1 : std::abs(high) * 0.1;
  low -= room;
  high += room;
}

double Axis::pixel(double value) const {
  const double share =
      logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  return from + share * (to - from);
}

std::vector<double> ticks(const Axis& axis, int count) {
  return axis.logarithmic ? logarithmic_ticks(axis, count) : linear_ticks(axis, count);
}

std::string tick_text(double value) {
  if (std::abs(value) >= 10000 && std::abs(value) < 1e15) return with_commas(std::llround(value));
  return fmt::format("{:.4g}", value);
}

}  // namespace snug::report
