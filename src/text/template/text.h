// Text operations shared by filters and methods.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/template/runtime.h"

namespace snug::tokenizer::jinja {

// Strips `characters`, or white space by default, from the ends.
std::string strip_text(std::string_view text, std::optional<std::string_view> characters, bool left,
                       bool right);
std::string upper_text(std::string_view text);
std::string title_text(std::string_view text);
std::string capitalize_text(std::string_view text);
// Replaces at most `count` times, or all occurrences if count is negative.
Value replace_text(Runtime& runtime, std::string_view text, std::string_view what,
                   std::string_view by, int64_t count);
Value join_texts(Runtime& runtime, const List& items, std::string_view separator);

bool is_letter(char32_t c);
bool is_letter_or_number(char32_t c);
bool is_not_lower(char32_t c);
bool is_not_upper(char32_t c);

}  // namespace snug::tokenizer::jinja
