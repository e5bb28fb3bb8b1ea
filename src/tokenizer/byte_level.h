// GPT-2's alphabet: each of the 256 bytes has a printable letter, so that any text is a string of
// letters a vocabulary can hold.
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
// The bytes behind `letters`; nothing if one of them is no byte's letter.
std::optional<std::string> from_byte_letters(std::string_view letters);

}  // namespace snug::tokenizer
