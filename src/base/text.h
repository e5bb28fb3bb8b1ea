// Text helpers that several folders need.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace snug {

// How many letters are added, left out, changed or swapped with their neighbour (optimal string
// alignment), for "did you mean".
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name`: the only one that ends in ".name", or one with at most one edit
// per four letters. Empty if none is near enough.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// 1234567 -> "1,234,567"
std::string with_commas(long long value);

// NaN as it prints best, "nan": its sign means nothing. Other values as they are.
double without_sign(double nan_or_other);

// Without spaces, tabs and line ends at both ends.
std::string_view trimmed(std::string_view text);

// "q_proj, v_proj" -> "q_proj", "v_proj": what stands between commas, trimmed, and is not empty.
std::vector<std::string> split_list(std::string_view text);

// The word quoted for a POSIX shell if necessary.
std::string shell_quoted(std::string_view word);

// Byte offset of the first invalid UTF-8 sequence, or npos.
size_t find_invalid_utf8(std::string_view text);

// One line that is safe to print: control characters, which a terminal would obey, become spaces
// and invalid bytes U+FFFD.
std::string printable(std::string_view text);

// The same for several lines: line feeds and tabs stay.
std::string printable_lines(std::string_view text);

}  // namespace snug
