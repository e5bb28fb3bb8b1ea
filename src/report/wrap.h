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

}  // namespace snug::report
