// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/steps/byte_level.h"

#include "text/tokenizer/unicode.h"

namespace snug::tokenizer {
namespace {

constexpr char32_t kFirstFreeLetter = 0x100;
constexpr char32_t kNumSpare = 68;  // unprintable bytes, which are mapped to letters from U+0100 on

bool prints(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

// Byte of each letter below U+0144, -1 where there is none.
const std::array<int, kFirstFreeLetter + kNumSpare>& bytes_of_letters() {
  static const auto table = [] {
    std::array<int, kFirstFreeLetter + kNumSpare> bytes{};
    bytes.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      size_t offset = 0;
      bytes[next_code_point(byte_letters()[byte], offset)] = byte;
    }
    return bytes;
  }();
  return table;
}

}  // namespace

const std::array<std::string, 256>& byte_letters() {
  static const auto table = [] {
    std::array<std::string, 256> letters;
    char32_t spare = kFirstFreeLetter;
    for (int byte = 0; byte < 256; ++byte) {
      append_utf8(letters[byte], prints(byte) ? static_cast<char32_t>(byte) : spare++);
    }
    return letters;
  }();
  return table;
}

std::string to_byte_letters(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) out += byte_letters()[static_cast<unsigned char>(byte)];
  return out;
}

std::optional<std::string> from_byte_letters(std::string_view letters) {
  const auto& bytes = bytes_of_letters();
  std::string out;
  for (size_t i = 0; i < letters.size();) {
    const char32_t letter = next_code_point(letters, i);
    if (letter >= bytes.size() || bytes[letter] < 0) return std::nullopt;
    out += static_cast<char>(bytes[letter]);
  }
  return out;
}

}  // namespace snug::tokenizer
