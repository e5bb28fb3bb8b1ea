// SPDX-License-Identifier: Apache-2.0
#include "report/text_width.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "base/terminal.h"
#include "base/text.h"

namespace snug::report {
namespace {

struct Range {
  uint32_t first, last;
};

// Blocks, not single characters: enough to keep columns straight, short enough to read.
constexpr Range kZeroWidth[] = {
    {0x0300, 0x036f}, {0x0483, 0x0489},   {0x0591, 0x05bd},  {0x0610, 0x061a}, {0x064b, 0x065f},
    {0x0e34, 0x0e3a}, {0x0e47, 0x0e4e},   {0x1ab0, 0x1aff},  {0x1dc0, 0x1dff}, {0x200b, 0x200f},
    {0x202a, 0x202e}, {0x2060, 0x2064},   {0x20d0, 0x20ff},  {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},
    {0xfeff, 0xfeff}, {0x1f3fb, 0x1f3ff}, {0xe0100, 0xe01ef}};
constexpr Range kDoubleWidth[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x23e9, 0x23ec},   {0x2614, 0x2615},
    {0x26a1, 0x26a1},   {0x2705, 0x2705},   {0x2728, 0x2728},   {0x274c, 0x274c},
    {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2e80, 0x303e},   {0x3041, 0x33ff},
    {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xa000, 0xa4cf},   {0xa960, 0xa97f},
    {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},
    {0xffe0, 0xffe6},   {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f7e0, 0x1f7eb},
    {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd}};

template <size_t N>
bool in(const Range (&ranges)[N], uint32_t code) {
  const auto* it = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                    [](uint32_t c, const Range& r) { return c < r.first; });
  return it != std::begin(ranges) && code <= std::prev(it)->last;
}

struct Piece {
  size_t bytes;
  size_t columns;
};

// The length of a character by its lead byte; 0 for an invalid lead byte.
size_t sequence_length(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  return 0;
}

// ESC [ parameters letter; snug writes only colours.
size_t escape_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const size_t end = text.find_first_not_of("0123456789;?", 2);
  return end == text.npos ? text.size() : end + 1;
}

Piece next_piece(std::string_view text) {
  if (const size_t escape = escape_length(text)) return {escape, 0};
  const size_t length = sequence_length(static_cast<uint8_t>(text[0]));
  if (length == 0 || length > text.size() || find_invalid_utf8(text.substr(0, length)) != text.npos)
    return {1, 1};
  if (length == 1) return {1, 1};
  uint32_t code = static_cast<uint8_t>(text[0]) & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<uint8_t>(text[i]) & 0x3f);
  if (in(kZeroWidth, code)) return {length, 0};
  return {length, in(kDoubleWidth, code) ? size_t{2} : size_t{1}};
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const Piece piece = next_piece(text);
    columns += piece.columns;
    text.remove_prefix(piece.bytes);
  }
  return columns;
}

std::string fit_columns(std::string_view text, size_t columns) {
  size_t used = 0, bytes = 0;
  while (bytes < text.size()) {
    const Piece piece = next_piece(text.substr(bytes));
    if (used + piece.columns > columns) break;
    used += piece.columns;
    bytes += piece.bytes;
  }
  return std::string(text.substr(0, bytes));
}

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

size_t shown_columns() {
  return ::isatty(STDOUT_FILENO) == 1
             ? static_cast<size_t>(std::max(1, terminal_size(STDOUT_FILENO).columns))
             : 0;
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

std::string clock_text(double seconds) {
  const auto s = static_cast<int64_t>(std::isfinite(seconds) ? std::clamp(seconds, 0.0, 1e9) : 0);
  if (s >= 86400) return fmt::format("{}d {:02}:{:02}", s / 86400, s / 3600 % 24, s / 60 % 60);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace snug::report
