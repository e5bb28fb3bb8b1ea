// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer/unicode.h"

#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/text.h"

namespace snug::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

// Length of the ill-formed sequence at `offset`: the longest prefix of a valid sequence, at least
// one byte.
size_t ill_formed_length(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(offset);
  size_t wanted = 0;
  unsigned char low = 0x80, high = 0xBF;  // bounds of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) wanted = 1;
  if (lead >= 0xE0 && lead <= 0xEF) wanted = 2;
  if (lead >= 0xF0 && lead <= 0xF4) wanted = 3;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  size_t length = 1;
  while (length <= wanted && offset + length < text.size()) {
    if (byte(offset + length) < low || byte(offset + length) > high) break;
    low = 0x80, high = 0xBF;
    ++length;
  }
  return length;
}

bool in_categories(char32_t c, uint32_t mask) {
  return (U_MASK(u_charType(static_cast<UChar32>(c))) & mask) != 0;
}

const icu::Normalizer2& normalizer(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  switch (form) {
    case NormalForm::Nfc:
      found = icu::Normalizer2::getNFCInstance(status);
      break;
    case NormalForm::Nfd:
      found = icu::Normalizer2::getNFDInstance(status);
      break;
    case NormalForm::Nfkc:
      found = icu::Normalizer2::getNFKCInstance(status);
      break;
    case NormalForm::Nfkd:
      found = icu::Normalizer2::getNFKDInstance(status);
      break;
  }
  SNUG_CHECK(U_SUCCESS(status) && found, "ICU: {}", u_errorName(status));
  return *found;
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& offset) {
  const auto at = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[i]));
  };
  const size_t length = std::min(utf8_length(text[offset]), text.size() - offset);
  const size_t start = offset;
  offset += length;
  switch (length) {
    case 1:
      return at(start);
    case 2:
      return (at(start) & 0x1F) << 6 | (at(start + 1) & 0x3F);
    case 3:
      return (at(start) & 0x0F) << 12 | (at(start + 1) & 0x3F) << 6 | (at(start + 2) & 0x3F);
    default:
      return (at(start) & 0x07) << 18 | (at(start + 1) & 0x3F) << 12 | (at(start + 2) & 0x3F) << 6 |
             (at(start + 3) & 0x3F);
  }
}

size_t previous_offset(std::string_view text, size_t offset) {
  do {
    --offset;
  } while (offset > 0 && (text[offset] & 0xC0) == 0x80);
  return offset;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bad = std::min(find_invalid_utf8(text), text.size());
    out += text.substr(0, bad);
    text.remove_prefix(bad);
    if (text.empty()) break;
    out += kReplacement;
    text.remove_prefix(ill_formed_length(text, 0));
  }
  return out;
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return u_isUWhiteSpace(static_cast<UChar32>(c));
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return in_categories(c, U_GC_N_MASK);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !u_isalnum(static_cast<UChar32>(c));
  return in_categories(c, U_GC_P_MASK);
}

bool is_word_char(char32_t c) {
  const bool joins = c == 0x200C || c == 0x200D;  // Join_Control
  return c == '_' || joins || u_isUAlphabetic(static_cast<UChar32>(c)) ||
         in_categories(c, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK);
}

std::string normalize_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode status = U_ZERO_ERROR;
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  normalizer(form).normalizeUTF8(0, piece, sink, nullptr, status);
  SNUG_CHECK(U_SUCCESS(status), "ICU normalization: {}", u_errorName(status));
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    // The one character whose lower case is two characters whatever the language.
    if (c == 0x130) {
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))));
    }
  }
  return out;
}

std::string strip_accents(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    if (!in_categories(next_code_point(text, i), U_GC_M_MASK)) {
      out += text.substr(start, i - start);
    }
  }
  return out;
}

std::vector<size_t> grapheme_ends(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> iterator(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  UText utext = UTEXT_INITIALIZER;
  utext_openUTF8(&utext, text.data(), static_cast<int64_t>(text.size()), &status);
  SNUG_CHECK(U_SUCCESS(status), "ICU grapheme breaks: {}", u_errorName(status));
  iterator->setText(&utext, status);
  std::vector<size_t> ends;
  iterator->first();
  for (int32_t end; (end = iterator->next()) != icu::BreakIterator::DONE;) {
    ends.push_back(static_cast<size_t>(end));
  }
  utext_close(&utext);
  return ends;
}

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
