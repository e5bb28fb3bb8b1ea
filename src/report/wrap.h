// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace snug::report {

// A text as lines of at most so many columns, parted at blanks; a word that is longer than a line
// is parted anywhere. 0 columns: one line.
std::vector<std::string> wrapped(std::string_view text, size_t columns);

// A text whose lines, each with its end, go on below where a terminal of so many columns is too
// narrow for them: between words, and four columns further to the right than they began. What
// aligns words in a first line stays. A terminal of less than eight columns folds nothing.
std::string folded(std::string_view text, size_t columns);

}  // namespace snug::report
