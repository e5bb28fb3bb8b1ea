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

constexpr size_t kIndent = 4;

std::string folded_line(std::string_view line, size_t columns) {
  const size_t margin = std::min({line.find_first_not_of(' '), line.size(), columns / 2});
  size_t end = 0;  // of the first line
  for (size_t blank = line.find(' ', margin); blank != line.npos; blank = line.find(' ', blank + 1))
    if (display_width(line.substr(0, blank)) <= columns) end = blank;
  if (end <= margin) end = margin + bytes_that_fit(line.substr(margin), columns - margin);
  const std::string_view first = line.substr(0, end), rest = line.substr(end);
  std::string out(first.substr(0, first.find_last_not_of(' ') + 1));
  out += '\n';
  const std::string_view words = rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
  if (words.empty()) return out;
  for (const std::string& part : wrapped(words, columns - margin - kIndent))
    out += std::string(margin + kIndent, ' ') + part + '\n';
  return out;
}

}  // namespace

std::string folded(std::string_view text, size_t columns) {
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (columns < 2 * kIndent || display_width(line) <= columns)
      out.append(line) += '\n';
    else
      out += folded_line(line, columns);
  }
  return out;
}

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
