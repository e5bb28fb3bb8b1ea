// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace snug {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t other = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + other});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  // nf4 for bnb.nf4.
  const std::string ending = "." + std::string(name);
  const auto ends = [&](const std::string& candidate) { return candidate.ends_with(ending); };
  if (std::ranges::count_if(candidates, ends) == 1) return *std::ranges::find_if(candidates, ends);
  // Two letters are near every other name, and a word as long as a page is meant for none.
  if (name.size() < 3 || name.size() > 200) return {};
  // max_seq_len for max_seq_length.
  const auto begins = [&](const std::string& candidate) { return candidate.starts_with(name); };
  if (std::ranges::count_if(candidates, begins) == 1)
    return *std::ranges::find_if(candidates, begins);
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(1, name.size() / 4) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  return best ? *best : std::string();
}

std::string with_commas(long long value) {
  const auto size = static_cast<unsigned long long>(value);
  std::string digits = std::to_string(value < 0 ? 0 - size : size);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return value < 0 ? "-" + digits : digits;
}

std::string shell_quoted(std::string_view word) {
  static constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (const std::string_view word = trimmed(text.substr(begin, end - begin)); !word.empty())
      words.emplace_back(word);
    begin = end + 1;
  }
  return words;
}

namespace {

// Bytes of a character, from its first byte; 0 for a byte that begins none.
size_t utf8_length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = utf8_length(lead);
    if (length == 0 || i + length > text.size()) return i;
    unsigned code = length == 1 ? lead : lead & (0xFFU >> (length + 1));
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if (next >> 6 != 2) return i;
      code = code << 6 | (next & 0x3FU);
    }
    static constexpr unsigned kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return i;
    i += length;
  }
  return std::string_view::npos;
}

namespace {

std::string without_controls(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const size_t length = std::min(std::max<size_t>(utf8_length(lead), 1), text.size());
    const std::string_view one = text.substr(0, length);
    const bool valid = find_invalid_utf8(one) == one.npos;
    // C1 controls (U+0080..U+009F) are C2 80..C2 9F; some terminals obey those too.
    const bool ascii_control = lead < 0x20 || lead == 0x7f;
    const bool control = (ascii_control && kept.find(text[0]) == kept.npos) ||
                         (valid && lead == 0xc2 && static_cast<unsigned char>(one[1]) < 0xa0);
    if (control)
      out += ' ';
    else if (valid)
      out += one;
    else
      out += "\xef\xbf\xbd";
    text.remove_prefix(valid ? length : 1);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return without_controls(text, ""); }
std::string printable_lines(std::string_view text) { return without_controls(text, "\n\t"); }

double without_sign(double nan_or_other) {
  return std::isnan(nan_or_other) ? std::numeric_limits<double>::quiet_NaN() : nan_or_other;
}

}  // namespace snug
