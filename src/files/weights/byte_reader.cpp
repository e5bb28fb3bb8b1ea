// SPDX-License-Identifier: Apache-2.0
#include "files/weights/byte_reader.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace snug::files {

std::string printable(std::string_view text, size_t max_bytes) {
  const bool valid = find_invalid_utf8(text) == std::string_view::npos;
  std::string shown;
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !valid))
      shown += fmt::format("\\x{:02x}", byte);
    else
      shown += c;
  }
  if (text.size() <= max_bytes) return shown;
  // The cut may have split a character: drop its loose bytes.
  while (!shown.empty() && find_invalid_utf8(shown) != std::string::npos) shown.pop_back();
  return shown + "…";
}

std::span<const std::byte> ByteReader::take(uint64_t count, const char* what) {
  if (count > remaining())
    throw UserError(
        "{}: {} at byte {} takes {} bytes, but only {} are left; the file is truncated or damaged, "
        "fetch it again",
        label_, what, position_, count, remaining());
  const auto taken = bytes_.subspan(position_, count);
  position_ += count;
  return taken;
}

std::string_view ByteReader::text(uint64_t count, const char* what) {
  const auto taken = take(count, what);
  return {reinterpret_cast<const char*>(taken.data()), taken.size()};
}

std::string_view ByteReader::line(const char* what) {
  const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + position_,
                              remaining());
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos) take(uint64_t{remaining()} + 1, what);
  position_ += end + 1;
  return rest.substr(0, end);
}

}  // namespace snug::files
