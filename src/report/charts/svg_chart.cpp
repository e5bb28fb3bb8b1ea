// SPDX-License-Identifier: Apache-2.0
#include "report/charts/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/bytes.h"
#include "base/text.h"
#include "report/html_page.h"
#include "report/text_width.h"

namespace snug::report {
namespace {

constexpr double kLeft = 64, kRight = 20;
constexpr double kTop = 46, kPlotHeight = 220, kBottom = 34;
constexpr double kLegendRow = 18;
constexpr double kPointsPerPixel = 1.3;

// The smallest and the largest point of each bucket: peaks survive, the page stays small.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points,
                                               double width) {
  const auto most = static_cast<size_t>(kPointsPerPixel * width);
  if (points.size() <= most) return points;
  std::vector<std::pair<double, double>> out;
  const size_t buckets = most / 2;
  for (size_t b = 0; b < buckets; ++b) {
    const auto begin = points.begin() + static_cast<long>(points.size() * b / buckets);
    const auto end = points.begin() + static_cast<long>(points.size() * (b + 1) / buckets);
    auto [low, high] = std::minmax_element(
        begin, end, [](const auto& a, const auto& c) { return a.second < c.second; });
    if (high < low) std::swap(low, high);
    out.push_back(*low);
    if (high != low) out.push_back(*high);
  }
  return out;
}

std::string open_svg(double width, double height, const std::string& title, bool has_style = true) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" viewBox=\"0 0 {0} "
      "{1}\" "
      "width=\"{0}\" height=\"{1}\"><title>{2}</title>{3}"
      "<text class=\"t\" x=\"0\" y=\"16\">{2}</text>",
      width, height, xml_escape(title),
      has_style ? fmt::format("<style>{}</style>", assets::chart_css) : "");
}

struct LegendEntry {
  std::string name, colour_class;
};

// 7 px is a generous column of the page's 12 px font.
double width_of(const LegendEntry& entry) {
  return 30 + 7.0 * static_cast<double>(display_width(entry.name));
}

// As many beside each other as `width` takes.
std::vector<std::vector<LegendEntry>> in_rows(const std::vector<LegendEntry>& entries,
                                              double width) {
  std::vector<std::vector<LegendEntry>> rows;
  double used = 0;
  for (const LegendEntry& entry : entries) {
    if (rows.empty() || used + width_of(entry) > width) {
      rows.emplace_back();
      used = 0;
    }
    rows.back().push_back(entry);
    used += width_of(entry);
  }
  return rows;
}

// From the left.
std::string legend(const std::vector<LegendEntry>& entries, double x, double y) {
  std::string out;
  for (const LegendEntry& entry : entries) {
    out += fmt::format(
        "<rect class=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"10\" height=\"10\" rx=\"2\"/>",
        entry.colour_class, x, y - 9);
    out +=
        fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>", x + 15, y, xml_escape(entry.name));
    x += width_of(entry);
  }
  return out;
}

std::string line_at(std::string_view style, double x1, double y1, double x2, double y2) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
                     style, x1, y1, x2, y2);
}

std::string grid(const LineChart& chart, const Axis& x, const Axis& y) {
  std::string out;
  for (const double tick : ticks(y, 5)) {
    out += line_at("grid", kLeft, y.pixel(tick), x.to, y.pixel(tick));
    out += fmt::format("<text class=\"mu\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                       kLeft - 8, y.pixel(tick) + 4, tick_text(tick));
  }
  const int usual = chart.width < 400 ? 4 : 8;
  double free_from = 0;  // names stand apart
  for (const double tick : chart.x_ticks.empty() ? ticks(x, usual) : chart.x_ticks) {
    const std::string name = tick_text(tick);
    const double half = 3.5 * static_cast<double>(name.size());
    if (tick != std::floor(tick)) continue;  // there is no step and a half
    if (x.pixel(tick) - half < free_from) continue;
    free_from = x.pixel(tick) + half + 4;
    out += fmt::format("<text class=\"mu\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                       x.pixel(tick), y.from + 18, name);
  }
  return out;
}

std::string draw_series(const Series& series, const std::string& x_label, const Axis& x,
                        const Axis& y) {
  std::string path, dots;
  bool pen_down = false;
  const auto points = thinned(series.points, x.to);
  for (const auto& [step, value] : points) {
    if (!is_drawable(value) || !is_drawable(step)) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x.pixel(step), y.pixel(value));
    const bool is_ring = series.look == Series::Look::Rings;
    if (is_ring || series.look == Series::Look::Dots || points.size() == 1)
      dots += fmt::format(
          "<circle{} cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{} {}: {}</title></circle>",
          is_ring ? " class=\"ring\"" : "", x.pixel(step), y.pixel(value), is_ring ? "5" : "3.5",
          xml_escape(x_label), tick_text(step), tick_text(value));
    pen_down = true;
  }
  if (path.empty()) return "";
  return fmt::format("<g class=\"{}\"><path{} d=\"{}\"/>{}</g>", series.colour_class,
                     series.look == Series::Look::Faint   ? " class=\"faint\""
                     : series.look == Series::Look::Rings ? " class=\"dashed\""
                                                          : "",
                     path, dots);
}

// A vertical line with its name on the side that has room, each name in a row of its own, since
// lines may be nearer to each other than names are long.
std::string mark_at(double at, const Axis& x, const Axis& y, const std::string& name, size_t row) {
  constexpr double kNameRow = 15;
  const bool to_the_left = at > (x.from + x.to) / 2;
  return line_at("best", at, y.to, at, y.from) +
         fmt::format("<text class=\"mu\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{}</text>",
                     to_the_left ? at - 6 : at + 6,
                     y.from - 8 - kNameRow * static_cast<double>(row),
                     to_the_left ? "end" : "start", xml_escape(name));
}

// Beside the title where there is room for all of it, else in rows below.
struct LegendPlace {
  explicit LegendPlace(const LineChart& chart) {
    std::vector<LegendEntry> entries;
    double width = 0;
    for (const Series& series : chart.series) {
      if (series.name.empty()) continue;
      entries.push_back({series.name, series.colour_class});
      width += width_of(entries.back());
    }
    left = std::max(kLeft + 90, 8.5 * static_cast<double>(display_width(chart.title)) + 24);
    is_beside = left + width <= chart.width;
    rows = in_rows(entries, is_beside ? width : chart.width);
  }
  double height() const { return is_beside ? 0 : kLegendRow * static_cast<double>(rows.size()); }
  std::string drawn() const {
    std::string out;
    for (size_t row = 0; row < rows.size(); ++row)
      out += is_beside ? legend(rows[row], left, 16)
                       : legend(rows[row], 0, 52 + kLegendRow * static_cast<double>(row));
    return out;
  }

  double left = 0;
  bool is_beside = true;
  std::vector<std::vector<LegendEntry>> rows;
};

constexpr double kRow = 24, kBar = 16, kFirstRow = 58;

bool is_narrow(const StackedChart& chart) { return chart.width < 500; }

std::string colour_class(size_t category) { return fmt::format("c{}", category % 8); }

Axis bytes_axis(const StackedChart& chart) {
  Axis x;
  x.include(0);
  x.include(static_cast<double>(std::max<int64_t>(chart.limit, 1)));
  for (const StackedBar& bar : chart.bars) {
    double sum = 0;
    for (const int64_t bytes : bar.segments)
      sum += static_cast<double>(std::max<int64_t>(bytes, 0));
    x.include(std::max(sum, static_cast<double>(bar.marker)));
  }
  x.from = is_narrow(chart) ? 104 : 168;
  x.to = chart.width - (is_narrow(chart) ? 82 : 90);  // the figures have their own column
  return x;
}

// Label, segments, peak tick and figure of one bar.
std::string draw_bar(const StackedChart& chart, const StackedBar& bar, const Axis& x, double y) {
  std::string out =
      fmt::format("<text class=\"mu\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", x.from - 10,
                  y + 12, xml_escape(bar.label));
  int64_t sum = 0;
  for (size_t c = 0; c < std::min(bar.segments.size(), chart.categories.size()); ++c) {
    if (bar.segments[c] <= 0) continue;
    const double from = x.pixel(static_cast<double>(sum));
    sum += bar.segments[c];
    out += fmt::format(
        "<rect class=\"{}\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"><title>{}: "
        "{}</title></rect>",
        colour_class(c), from, y, x.pixel(static_cast<double>(sum)) - from, kBar,
        xml_escape(chart.categories[c]), format_bytes(bar.segments[c]));
  }
  const double peak = x.pixel(static_cast<double>(bar.marker));
  if (bar.marker > 0) out += line_at("mark", peak, y - 2, peak, y + kBar + 2);
  return out + fmt::format("<text class=\"mu\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                           chart.width, y + 12, format_bytes(sum));
}

// A category too small to see needs no colour in the legend.
bool is_visible(const StackedChart& chart, size_t category, const Axis& x) {
  return std::any_of(chart.bars.begin(), chart.bars.end(), [&](const StackedBar& bar) {
    return category < bar.segments.size() &&
           x.pixel(static_cast<double>(bar.segments[category])) - x.from > 0.5;
  });
}

}  // namespace

std::string line_chart(const LineChart& chart) {
  Axis x, y;
  x.logarithmic = chart.logarithmic_x;
  for (const Series& series : chart.series)
    for (const auto& [step, value] : series.points)
      if (is_drawable(step) && is_drawable(value)) {
        x.include(step);
        y.include(value);
      }
  if (x.is_empty()) return "";
  if (chart.limit > 0) y.include(chart.limit);
  if (chart.from_zero) y.include(0);
  x.widen();
  y.widen();
  y.high += 0.04 * (y.high - y.low);
  const LegendPlace names(chart);
  x.from = kLeft;
  x.to = chart.width - kRight;
  y.to = kTop + names.height();
  y.from = y.to + kPlotHeight;
  std::string out = open_svg(chart.width, y.from + kBottom, chart.title, chart.has_style);
  out += names.drawn() + grid(chart, x, y);
  out += fmt::format("<text class=\"mu\" x=\"0\" y=\"34\">{}</text>", xml_escape(chart.unit));
  out += fmt::format("<text class=\"mu\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", x.to,
                     y.from + 32, xml_escape(chart.x_label));
  if (chart.limit > 0)
    out += line_at("limit", kLeft, y.pixel(chart.limit), x.to, y.pixel(chart.limit));
  for (size_t i = 0; i < chart.marks.size(); ++i)
    out += mark_at(x.pixel(chart.marks[i].first), x, y, chart.marks[i].second, i);
  for (const Series& series : chart.series) out += draw_series(series, chart.x_label, x, y);
  return out + "</svg>";
}

std::string stacked_chart(const StackedChart& chart) {
  if (chart.bars.empty()) return "";
  const Axis x = bytes_axis(chart);
  std::vector<LegendEntry> entries;
  for (size_t c = 0; c < chart.categories.size(); ++c)
    if (is_visible(chart, c, x)) entries.push_back({chart.categories[c], colour_class(c)});
  std::string drawn;
  double y = 38;
  for (const std::vector<LegendEntry>& row : in_rows(entries, chart.width)) {
    drawn += legend(row, 0, y);
    y += kLegendRow;
  }
  const double first = y + kFirstRow - 38 - kLegendRow;
  y = first;
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const StackedBar& bar = chart.bars[i];
    if (i == 0 || bar.group != chart.bars[i - 1].group) {
      drawn += fmt::format("<text x=\"0\" y=\"{}\">{}</text>", y + 12, xml_escape(bar.group));
      if (is_narrow(chart)) y += kRow;
    }
    drawn += draw_bar(chart, bar, x, y);
    y += kRow;
  }
  if (chart.limit > 0) {
    const double at = x.pixel(static_cast<double>(chart.limit));
    drawn += line_at("limit", at, first - 8, at, y);
  }
  return open_svg(chart.width, y + 12, chart.title) + drawn + "</svg>";
}

}  // namespace snug::report
