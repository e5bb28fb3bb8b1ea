// SPDX-License-Identifier: Apache-2.0
#include "report/wrap.h"

#include <algorithm>

#include "report/text_width.h"

namespace snug::report {
namespace {

// How much of the text a line takes, without the blank that it is parted at.
size_t bytes_that_fit(std::string_view text, size_t columns) {
  const size_t most = fit_columns(text, columns).size();
  if (most == text.size() || text[most] == ' ') return most;
  const size_t blank = text.substr(0, most).rfind(' ');
  if (blank != text.npos && blank > 0) return blank;
  // One letter at least: it may be wider than the line.
  return std::max({most, fit_columns(text, 2).size(), size_t{1}});
}

}  // namespace

std::vector<std::string> wrapped(std::string_view text, size_t columns) {
  std::vector<std::string> lines;
  while (columns > 0 && display_width(text) > columns) {
    const size_t end = bytes_that_fit(text, columns);
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  if (!text.empty() || lines.empty()) lines.emplace_back(text);
  return lines;
}

}  // namespace snug::report
