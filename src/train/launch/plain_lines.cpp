// SPDX-License-Identifier: Apache-2.0
#include "train/launch/plain_lines.h"

namespace snug::launch {
namespace {

// Without control sequences: ESC [ parameters letter.
std::string without_sequences(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain += text[i];
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '[') ++i;
    while (i + 1 < text.size() && (text[i + 1] < '@' || text[i + 1] > '~')) ++i;
    ++i;
  }
  return plain;
}

std::string last_drawn(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const size_t start = line.rfind('\r');
  return without_sequences(start == line.npos ? line : line.substr(start + 1));
}

}  // namespace

std::string PlainLines::take(std::string_view bytes) {
  std::string whole;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == bytes.npos) {
      line_ += bytes;
      break;
    }
    line_ += bytes.substr(0, end);
    whole += last_drawn(line_) + "\n";
    line_.clear();
    bytes.remove_prefix(end + 1);
  }
  // A live line alone never ends; its earlier drawings need not be kept.
  if (line_.size() < 2) return whole;
  if (const size_t start = line_.rfind('\r', line_.size() - 2); start != line_.npos)
    line_.erase(0, start);
  return whole;
}

std::string PlainLines::rest() {
  std::string text = last_drawn(line_);
  line_.clear();
  return text.empty() ? text : text + "\n";
}

}  // namespace snug::launch
