// Charts as SVG text: lines over steps, stacked horizontal bars, named points, and memory over one
// step. Colours are CSS classes with a light and a dark value, so that a chart looks right alone
// and inside a page.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace snug::report {

// Finite and small enough for an axis.
bool is_drawable(double value);

// Maps values to pixels, linearly or logarithmically.
struct Axis {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  double from = 0, to = 1;   // pixels
  bool logarithmic = false;  // values are then positive

  bool is_empty() const { return low > high; }
  void include(double value);
  // Adds room on both sides of a single value, so that the scale is never 0.
  void widen();
  double pixel(double value) const;
};

// Round steps (1, 2 or 5 times a power of ten) that give about `count` ticks; on a logarithmic axis
// powers of two or of ten, whichever fits.
std::vector<double> ticks(const Axis& axis, int count);

// "12,000", "0.25".
std::string tick_text(double value);

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
  bool logarithmic_x = false;                         // all x are positive
  std::vector<double> x_ticks;                        // empty: round ones
  double limit = 0;                                   // a horizontal line; 0: none
  std::vector<std::pair<double, std::string>> marks;  // vertical lines with names
  double width = 760;
  bool has_style = true;  // false: the surrounding page has the styles
};

// Empty when no series has a finite point.
std::string line_chart(const LineChart& chart);

struct StackedBar {
  std::string group;  // shown once for consecutive bars of one group
  std::string label;
  std::vector<int64_t> segments;  // bytes per category
  int64_t marker = 0;             // a tick on the bar (the peak); 0: none
};

struct StackedChart {
  std::string title;
  std::vector<std::string> categories;
  std::vector<StackedBar> bars;
  int64_t limit = 0;   // a line through all bars (the budget); 0: none
  double width = 760;  // below 500 groups have rows of their own
};

// Empty when there is no bar.
std::string stacked_chart(const StackedChart& chart);

// Named points over two axes. A name is drawn where it covers nothing; without such a place its
// point gets a number, for a key beside the chart.
struct ScatterPoint {
  std::string label;  // drawn beside it
  std::string hint;   // tool tip
  std::string link;   // "#row-3"; empty: none
  double x = 0, y = 0;
  std::string colour_class;  // c0 .. c7
  bool is_cross = false;     // drawn as a cross: it did not finish
};

struct ScatterChart {
  std::string name;  // for screen readers
  std::string x_label, y_label;
  std::vector<ScatterPoint> points;
  bool logarithmic_x = false;
  double limit = 0;  // a horizontal line; 0: none
  std::string limit_name;
  double width = 860, height = 400;
  bool all_numbered = false;  // numbers only, for a small chart
};

// Empty when no point is finite. The surrounding page styles the classes chart, grid, mu, limit,
// cross, halo and c0 .. c7. `numbered`: indices of the points drawn with a number (index + 1)
// instead of their name.
std::string scatter_chart(const ScatterChart& chart, std::vector<size_t>* numbered = nullptr);

// Memory over one optimizer step, stacked by category. The drawing takes any width; scale, phases
// and limit are HTML text beside it, which stays readable on a phone. Tool tips show what ran.
struct PlanMoment {
  std::string label;  // "block 3, forward"
  std::string phase;  // "forward": marked below the chart
  std::vector<int64_t> by_category;
};

struct TimelineChart {
  std::string name = "memory over one step, by category";  // for screen readers
  std::string limit_name = "the device has";
  std::vector<std::string> categories;
  std::vector<PlanMoment> moments;
  int64_t limit_bytes = 0;  // 0: none
};

// The page needs assets::timeline_css and defines the colours --k0 … --k7, --fg, --mu, --line,
// --over (the limit) and --paper (the background).
std::string timeline_chart(const TimelineChart& chart);

int64_t total(const PlanMoment& moment);

// At most `count` moments, in order: each is the highest of a group within one phase.
std::vector<PlanMoment> thinned(const std::vector<PlanMoment>& moments, size_t count);

}  // namespace snug::report
