// Bars and curves of characters. All take the columns they may use and fill them exactly.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"

namespace snug::monitor {

using Style = TextStyle;

// The text in a colour ("32", "1;31"); as it is where colours are off.
std::string paint(std::string_view text, std::string_view colour, const Style& style);

// At least `columns` wide, filled with blanks; longer text is cut.
std::string padded(std::string_view text, size_t columns);

// A bar that is full at share 1.
std::string gauge(double share, size_t columns, std::string_view colour, const Style& style);

// A stretch of a stacked bar. Without colours its letter fills it.
struct Part {
  char letter = '?';
  std::string colour;
  int64_t bytes = 0;
};

// Parts one after another on a scale of `full` bytes; a mark where `mark` bytes end, 0: none. A
// part that is there gets a column if there is one.
std::string stacked_bar(const std::vector<Part>& parts, int64_t full, int64_t mark, size_t columns,
                        const Style& style);

// Values as a curve of one line, evenly over `columns`; numbers that are none are left blank.
std::string sparkline(const std::vector<double>& values, size_t columns, const Style& style);

}  // namespace snug::monitor
