// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/text_width.h"

namespace snug::monitor {
namespace {

constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr const char* kLevels[] = {"_", ".", ":", "-", "=", "+", "*", "#"};

// Which part each column shows; -1: none. Rounded ends, so that parts and their sum agree.
std::vector<int> columns_of(const std::vector<Part>& parts, int64_t full, size_t columns) {
  std::vector<int> shown(columns, -1);
  double end = 0;
  size_t at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].bytes <= 0) continue;
    end += static_cast<double>(parts[i].bytes) / static_cast<double>(full);
    auto until = static_cast<size_t>(std::lround(end * static_cast<double>(columns)));
    until = std::min(std::max(until, at + 1), columns);
    for (; at < until; ++at) shown[at] = static_cast<int>(i);
  }
  return shown;
}

}  // namespace

std::string paint(std::string_view text, std::string_view colour, const Style& style) {
  if (!style.colours || colour.empty() || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", colour, text);
}

std::string padded(std::string_view text, size_t columns) {
  std::string out = report::fit_columns(text, columns);
  const size_t width = report::display_width(out);
  return out.append(columns - std::min(width, columns), ' ');
}

std::string gauge(double share, size_t columns, std::string_view colour, const Style& style) {
  const double inside = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0;
  const auto full = static_cast<size_t>(std::lround(inside * static_cast<double>(columns)));
  std::string done, rest;
  for (size_t i = 0; i < full; ++i) done += style.unicode ? "█" : "#";
  for (size_t i = full; i < columns; ++i) rest += style.unicode ? "░" : ".";
  return paint(done, colour, style) + paint(rest, "2", style);
}

std::string stacked_bar(const std::vector<Part>& parts, int64_t full, int64_t mark, size_t columns,
                        const Style& style) {
  if (full <= 0 || columns == 0) return padded("", columns);
  const std::vector<int> shown = columns_of(parts, full, columns);
  const double place =
      static_cast<double>(mark) / static_cast<double>(full) * static_cast<double>(columns);
  const size_t marked =
      mark <= 0 ? columns
                : std::min(columns - 1, static_cast<size_t>(std::max(0.0, std::ceil(place) - 1)));
  std::string out;
  for (size_t i = 0; i < columns; ++i) {
    if (i == marked) {
      out += paint(style.unicode ? "┃" : "|", "1", style);
    } else if (shown[i] < 0) {
      out += paint(style.unicode ? "░" : ".", "2", style);
    } else {
      const Part& part = parts[static_cast<size_t>(shown[i])];
      const bool blocks = style.unicode && style.colours;
      out += paint(blocks ? std::string("█") : std::string(1, part.letter), part.colour, style);
    }
  }
  return out;
}

std::string sparkline(const std::vector<double>& values, size_t columns, const Style& style) {
  double lowest = INFINITY, highest = -INFINITY;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  const size_t shown = std::min(columns, values.size());
  std::string out;
  for (size_t i = 0; i < shown; ++i) {
    const double value = values[shown == 1 ? 0 : i * (values.size() - 1) / (shown - 1)];
    if (!std::isfinite(value)) {
      out += " ";
      continue;
    }
    const double share = highest > lowest ? (value - lowest) / (highest - lowest) : 0.5;
    const auto level = static_cast<size_t>(std::clamp(std::lround(share * 7), 0L, 7L));
    out += style.unicode ? kBlocks[level] : kLevels[level];
  }
  return out.append(columns - shown, ' ');
}

}  // namespace snug::monitor
