// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/painter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/text.h"
#include "report/text_width.h"

namespace snug::monitor {
namespace {

struct Known {
  const char* name;
  char letter;
  const char* colour;
};

// From what stays to what comes and goes; the colours are those of a run's own bars.
constexpr Known kKnown[] = {{"parameters", 'P', "34"},    {"optimizer", 'O', "35"},
                            {"gradients", 'G', "33"},     {"activations", 'A', "32"},
                            {"communication", 'C', "91"}, {"data", 'D', "37"},
                            {"workspace", 'W', "36"}};

// A category that a later snug has and this one does not is shown all the same.
Known known(const std::string& name) {
  for (const Known& one : kKnown)
    if (name == one.name) return one;
  return {name.c_str(), '?', "37"};
}

int64_t bytes_in(const std::map<std::string, int64_t>& bytes, const std::string& name) {
  const auto found = bytes.find(name);
  return found == bytes.end() ? 0 : found->second;
}

}  // namespace

std::vector<std::string> MemoryView::categories() const {
  std::vector<std::string> names;
  for (const Known& one : kKnown) names.emplace_back(one.name);
  for (const auto* bytes : {&live_.by_category, &live_.peak_by_category})
    for (const auto& [name, _] : *bytes)
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

std::vector<Part> MemoryView::parts(const std::map<std::string, int64_t>& bytes) const {
  std::vector<Part> parts;
  for (const std::string& name : categories()) {
    const Known one = known(name);
    parts.push_back({one.letter, one.colour, bytes_in(bytes, name)});
  }
  return parts;
}

int64_t MemoryView::scale() const {
  if (live_.budget > 0) return std::max({live_.budget, live_.peak, live_.predicted_peak});
  return std::max({live_.peak, live_.predicted_peak, live_.allocated});
}

std::string MemoryView::sentence(size_t columns) const {
  std::string text = format_bytes(live_.allocated);
  const auto add = [&](const char* before, int64_t bytes) {
    const std::string more = before + format_bytes(bytes);
    if (bytes > 0 && text.size() + more.size() <= columns) text += more;
  };
  add(" of ", live_.budget);
  add(", peak ", live_.peak);
  add(", planned ", live_.predicted_peak);
  add(", host ", live_.host_bytes);
  return text;
}

std::string MemoryView::bar_now(size_t columns, const Style& style) const {
  return stacked_bar(parts(live_.by_category), scale(), live_.predicted_peak, columns, style);
}

std::string MemoryView::bar_at_peak(size_t columns, const Style& style) const {
  return stacked_bar(parts(live_.peak_by_category), scale(), live_.predicted_peak, columns, style);
}

std::vector<std::string> MemoryView::table(size_t columns, const Style& style) const {
  std::vector<std::string> lines;
  const bool has_room = columns >= 60;
  const char* indent = columns >= 42 ? "  " : "";
  for (const std::string& name : categories()) {
    const int64_t now = bytes_in(live_.by_category, name);
    const int64_t peak = bytes_in(live_.peak_by_category, name);
    if (now == 0 && peak == 0) continue;
    const Known one = known(name);
    const std::string sign = style.unicode && style.colours ? "█" : std::string(1, one.letter);
    const double share =
        live_.peak > 0 ? 100.0 * static_cast<double>(peak) / static_cast<double>(live_.peak) : 0;
    lines.push_back(fmt::format("{}{} {} {:>11} {:>11}{}", indent, paint(sign, one.colour, style),
                                padded(printable(name), 13), format_bytes(now), format_bytes(peak),
                                has_room ? fmt::format("  {:3.0f} % of the peak", share) : ""));
  }
  if (!lines.empty())
    lines.insert(
        lines.begin(),
        paint(fmt::format("{}  {:<13} {:>11} {:>11}", indent, "", "now", "at peak"), "2", style));
  return lines;
}

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
