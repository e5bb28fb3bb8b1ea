// How many terminal columns a text takes. Written out here because wcwidth() follows the locale,
// and a program under LANG=C still prints UTF-8.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace snug::report {

// Columns of a UTF-8 text without control characters: wide East Asian and emoji take two, combining
// marks none. Escape sequences that set colours count nothing; an invalid byte counts one.
size_t display_width(std::string_view text);

// The longest start of `text` that fits `columns`.
std::string fit_columns(std::string_view text, size_t columns);

// One line that is safe to show: control characters (a terminal would obey them) become spaces and
// invalid bytes U+FFFD.
std::string printable(std::string_view text);

// The same for a text of several lines: line feeds and tabs stay.
std::string printable_lines(std::string_view text);

}  // namespace snug::report
