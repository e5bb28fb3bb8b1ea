// Points with names over two axes, as SVG: what each costs one way and the other. Names stand where
// they cover nothing; one that finds no room has a number there, for a key beside the drawing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace snug::report {

struct ScatterPoint {
  std::string label;  // drawn beside it
  std::string hint;   // tool tip
  std::string link;   // "#row-3"; empty: none
  double x = 0, y = 0;
  std::string colour_class;  // c0 .. c7
  bool is_cross = false;     // a cross instead of a dot: it did not come to an end
};

struct ScatterChart {
  std::string name;  // for those who cannot see it
  std::string x_label, y_label;
  std::vector<ScatterPoint> points;
  bool logarithmic_x = false;
  double limit = 0;  // a horizontal line; 0: none
  std::string limit_name;
  double width = 860, height = 400;
  bool all_numbered = false;  // no names at all: a small drawing
};

// Empty when no point is finite. The page around it styles chart, grid, mu, limit, cross, halo and
// c0 .. c7.
// `numbered`: indices of the points that have a number, index + 1, in place of their name.
std::string scatter_chart(const ScatterChart& chart, std::vector<size_t>* numbered = nullptr);

}  // namespace snug::report
