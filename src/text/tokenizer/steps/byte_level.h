// GPT-2's byte alphabet: each of the 256 bytes is mapped to a printable letter, so that any text
// becomes a string that a vocabulary can contain.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace snug::tokenizer {

// The UTF-8 of each byte's letter.
const std::array<std::string, 256>& byte_letters();
std::string to_byte_letters(std::string_view bytes);
// The bytes of `letters`; none if a letter does not stand for a byte.
std::optional<std::string> from_byte_letters(std::string_view letters);

}  // namespace snug::tokenizer
