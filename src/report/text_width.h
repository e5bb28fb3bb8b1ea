// Text in terminal columns: how wide it is, where it wraps, and times as a clock shows them. Widths
// do not use wcwidth(), which follows the locale: a program under LANG=C still prints UTF-8.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace snug::report {

// Columns of a UTF-8 text without control characters: wide East Asian letters and emoji take two,
// combining marks and colour escapes none, an invalid byte one.
size_t display_width(std::string_view text);

// The longest start of `text` that fits `columns`.
std::string fit_columns(std::string_view text, size_t columns);

// Splits a text at blanks into lines of at most `columns`; a word longer than a line is split
// anywhere. 0 columns: one line.
std::vector<std::string> wrapped(std::string_view text, size_t columns);

// Wraps the lines of a text that are wider than the terminal: between words, the rest indented by
// four columns more. Blanks that align words in a line's first part stay. Below eight columns
// nothing is wrapped. Every line ends in a line feed.
std::string folded(std::string_view text, size_t columns);

// Columns of the terminal that standard output is; 0: it is none, and lines may be of any length.
size_t shown_columns();

// 151 -> "2:31", 3751 -> "1:02:31", from a day on "2d 03:04". Negative or not a number: "0:00".
std::string clock_text(double seconds);

}  // namespace snug::report
