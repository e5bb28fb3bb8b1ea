// Unicode functions for tokenizers: iterating UTF-8, repairing it as Python's errors="replace"
// does, character classes, normalization forms (ICU), and GPT-2's byte alphabet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace snug::tokenizer {

// The length of the sequence that begins with `lead` in valid UTF-8.
inline size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point at `offset` of valid UTF-8; moves `offset` past it.
char32_t next_code_point(std::string_view text, size_t& offset);
// The offset of the character that ends just before `offset` (> 0).
size_t previous_offset(std::string_view text, size_t offset);
void append_utf8(std::string& out, char32_t code_point);

// Replaces every maximal ill-formed sequence by one U+FFFD; returns valid text unchanged.
std::string repair_utf8(std::string_view text);

bool is_white_space(char32_t c);  // White_Space
bool is_numeric(char32_t c);      // general categories Nd, Nl, No
bool is_punctuation(char32_t c);  // general categories P*, or ASCII punctuation
bool is_word_char(char32_t c);    // \w of Rust's regular expressions

enum class NormalForm { Nfc, Nfd, Nfkc, Nfkd };
std::string normalize_form(std::string_view text, NormalForm form);
std::string lower_case(std::string_view text);
// Drops combining marks (general category M).
std::string strip_accents(std::string_view text);

// Offsets at which the extended grapheme clusters of `text` end.
std::vector<size_t> grapheme_ends(std::string_view text);

// GPT-2's byte alphabet maps each of the 256 bytes to a printable letter, so that any text becomes
// a string that a vocabulary can contain. The UTF-8 of each byte's letter.
const std::array<std::string, 256>& byte_letters();
std::string to_byte_letters(std::string_view bytes);
// The bytes of `letters`; none if a letter does not stand for a byte.
std::optional<std::string> from_byte_letters(std::string_view letters);

}  // namespace snug::tokenizer
