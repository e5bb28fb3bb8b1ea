// Two kinds of chart as SVG text: lines over steps, and stacked horizontal bars. Colours are CSS
// classes with a light and a dark value, so that a chart looks right alone and inside report.html.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace snug::report {

struct Series {
  // Dots: points joined by a line; Rings: hollow ones, joined by a dashed line.
  enum class Look { Line, Faint, Dots, Rings };
  std::string name;          // empty: not in the legend
  std::string colour_class;  // c0 .. c7
  Look look = Look::Line;
  std::vector<std::pair<double, double>> points;  // (step, value); NaN and infinities leave a gap
};

struct LineChart {
  std::string title;
  std::string unit;  // of the values, shown above the axis
  std::vector<Series> series;
  bool from_zero = false;
  std::string x_label = "step";
  bool logarithmic_x = false;   // then all of them are positive
  std::vector<double> x_ticks;  // empty: round ones
  double limit = 0;             // a horizontal line; 0: none
  std::optional<double> mark;   // a vertical line with a name
  std::string mark_name;
  double width = 760;
  bool has_style = true;  // false: the page around it styles charts
};

// Empty when no series has a finite point.
std::string line_chart(const LineChart& chart);

struct StackedBar {
  std::string group;  // shown once for bars that follow each other in one group
  std::string label;
  std::vector<int64_t> segments;  // bytes, one a category
  int64_t marker = 0;             // a tick on the bar (the peak); 0: none
};

struct StackedChart {
  std::string title;
  std::vector<std::string> categories;
  std::vector<StackedBar> bars;
  int64_t limit = 0;  // a line through all bars (the budget); 0: none
};

// Empty when there is no bar.
std::string stacked_chart(const StackedChart& chart);

}  // namespace snug::report
