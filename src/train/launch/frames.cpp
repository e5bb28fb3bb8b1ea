// SPDX-License-Identifier: Apache-2.0
#include "train/launch/frames.h"

#include <fmt/format.h>

#include <charconv>

namespace snug::launch {
namespace {

// "\x1eSNUG" channel, 8 hexadecimal digits of length, then the bytes.
constexpr std::string_view kMark = "\x1eSNUG";
constexpr size_t kDigits = 8;
constexpr size_t kHeader = kMark.size() + 1 + kDigits;

}  // namespace

std::string framed(Channel channel, std::string_view bytes) {
  return fmt::format("{}{}{:08x}{}", kMark, static_cast<char>(channel), bytes.size(), bytes);
}

void FrameReader::take(std::string_view bytes, const Sink& sink) {
  waiting_ += bytes;
  std::string_view rest = waiting_;
  while (true) {
    const size_t mark = rest.find(kMark);
    if (mark == rest.npos) {
      // The beginning of a mark may be at the end.
      rest.remove_prefix(rest.size() - std::min(rest.size(), kMark.size() - 1));
      break;
    }
    rest.remove_prefix(mark);
    if (rest.size() < kHeader) break;
    size_t length = 0;
    const char* digits = rest.data() + kMark.size() + 1;
    const auto [end, error] = std::from_chars(digits, digits + kDigits, length, 16);
    if (error != std::errc{} || end != digits + kDigits) {
      rest.remove_prefix(kMark.size());
      continue;
    }
    if (rest.size() < kHeader + length) break;
    sink(static_cast<Channel>(rest[kMark.size()]), rest.substr(kHeader, length));
    rest.remove_prefix(kHeader + length);
  }
  waiting_ = std::string(rest);
}

}  // namespace snug::launch
