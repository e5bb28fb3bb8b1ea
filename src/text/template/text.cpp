// SPDX-License-Identifier: Apache-2.0
#include "text/template/text.h"

#include <unicode/uchar.h>

#include "text/tokenizer/unicode.h"

namespace snug::tokenizer::jinja {
namespace {

bool holds(std::string_view characters, char32_t wanted) {
  for (size_t i = 0; i < characters.size();) {
    if (next_code_point(characters, i) == wanted) return true;
  }
  return false;
}

void append_upper(std::string& out, char32_t c) {
  if (c == 0xDF)
    out += "SS";  // the sharp s
  else
    append_utf8(out, static_cast<char32_t>(u_toupper(static_cast<UChar32>(c))));
}

}  // namespace

std::string strip_text(std::string_view text, std::optional<std::string_view> characters, bool left,
                       bool right) {
  const auto goes = [&](char32_t c) {
    // Python's strip() also takes the four separators of ASCII.
    return characters ? holds(*characters, c) : is_white_space(c) || (c >= 0x1C && c <= 0x1F);
  };
  while (left && !text.empty()) {
    size_t next = 0;
    if (!goes(next_code_point(text, next))) break;
    text.remove_prefix(next);
  }
  while (right && !text.empty()) {
    const size_t last = previous_offset(text, text.size());
    size_t offset = last;
    if (!goes(next_code_point(text, offset))) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

std::string upper_text(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) append_upper(out, next_code_point(text, i));
  return out;
}

std::string title_text(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = next_code_point(text, i);
    if (in_word)
      out += lower_case(text.substr(begin, i - begin));
    else
      append_upper(out, c);
    in_word = is_letter(c);
  }
  return out;
}

std::string capitalize_text(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = utf8_length(text[0]);
  return upper_text(text.substr(0, first)) + lower_case(text.substr(first));
}

Value replace_text(Runtime& runtime, std::string_view text, std::string_view what,
                   std::string_view by, int64_t count) {
  std::string out;
  runtime.charge(text.size());
  if (what.empty()) runtime.fail("replace() of an empty text");
  for (size_t at; count != 0 && (at = text.find(what)) != std::string_view::npos; --count) {
    if (out.size() + by.size() > kMaxTextBytes) runtime.fail("replace() makes too long a text");
    runtime.charge(by.size());
    out.append(text.substr(0, at)).append(by);
    text.remove_prefix(at + what.size());
  }
  return out.append(text);
}

Value join_texts(Runtime& runtime, const List& items, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string text = to_text(items[i], runtime);
    runtime.charge(text.size() + separator.size());
    if (out.size() + text.size() > kMaxTextBytes) runtime.fail("join() makes too long a text");
    if (i > 0) out += separator;
    out += text;
  }
  return out;
}

bool is_letter(char32_t c) { return u_isalpha(static_cast<UChar32>(c)); }
bool is_letter_or_number(char32_t c) { return is_letter(c) || is_numeric(c); }
bool is_not_lower(char32_t c) { return !u_islower(static_cast<UChar32>(c)); }
bool is_not_upper(char32_t c) { return !u_isupper(static_cast<UChar32>(c)); }

}  // namespace snug::tokenizer::jinja
