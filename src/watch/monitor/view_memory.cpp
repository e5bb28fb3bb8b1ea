// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/view_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
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
                                padded(report::printable(name), 13), format_bytes(now),
                                format_bytes(peak),
                                has_room ? fmt::format("  {:3.0f} % of the peak", share) : ""));
  }
  if (!lines.empty())
    lines.insert(
        lines.begin(),
        paint(fmt::format("{}  {:<13} {:>11} {:>11}", indent, "", "now", "at peak"), "2", style));
  return lines;
}

}  // namespace snug::monitor
