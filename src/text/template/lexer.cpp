// SPDX-License-Identifier: Apache-2.0
#include "text/template/parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer::jinja {
namespace {

constexpr std::string_view kSpace = " \t\n\r\f\v";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_name_start(c) || is_digit(c); }

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (source.substr(i + 1, 1) != "\n") {
      out += '\n';
    }
  }
  if (out.ends_with('\n')) out.pop_back();  // Jinja's keep_trailing_newline is off
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where)
      : source_(normalize_newlines(source)), where_(where) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) {
      read_text();
      if (position_ < source_.size()) read_tag();
    }
    add(TokenKind::End, "the end of the template");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string_view message) const {
    throw UserError("{}: line {}: {}", where_, line_, message);
  }
  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(size_t count) {
    line_ += static_cast<int>(
        std::count(source_.begin() + position_, source_.begin() + position_ + count, '\n'));
    position_ += count;
  }

  size_t find_tag(size_t from) const {
    for (size_t at = from; (at = source_.find('{', at)) != std::string::npos; ++at) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : ' ';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return source_.size();
  }

  // The text up to the next tag, without the white space that the tags on both sides strip.
  void read_text() {
    const size_t tag = find_tag(position_);
    std::string text = source_.substr(position_, tag - position_);
    const char control = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    const bool at_line_start = position_ == 0 || source_[position_ - 1] == '\n';
    const bool is_print = source_.compare(tag, 2, "{{") == 0;
    if (trim_all_) {
      text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
    } else if (trim_newline_ && text.starts_with('\n')) {
      text.erase(0, 1);
    }
    if (tag < source_.size() && control == '-') {
      text.erase(text.find_last_not_of(kSpace) + 1);
    } else if (tag < source_.size() && control != '+' && !is_print) {
      strip_indentation(text, at_line_start || (trim_newline_ && source_[position_] == '\n'));
    }
    trim_all_ = trim_newline_ = false;
    if (!text.empty()) add(TokenKind::Text, std::move(text));
    advance(tag - position_);
  }

  // Blanks between the start of a line and a block.
  static void strip_indentation(std::string& text, bool at_line_start) {
    const size_t last = text.find_last_not_of(" \t");
    if (last == std::string::npos ? at_line_start : text[last] == '\n') text.erase(last + 1);
  }

  void read_tag() {
    const char kind = source_[position_ + 1];
    size_t opening = 2;
    const char control = position_ + 2 < source_.size() ? source_[position_ + 2] : ' ';
    if (control == '-' || control == '+') ++opening;
    if (kind == '#') return read_comment();
    if (kind == '%' && read_raw()) return;
    const bool prints = kind == '{';
    add(prints ? TokenKind::PrintBegin : TokenKind::BlockBegin, prints ? "{{" : "{%");
    advance(opening);
    const char* closing = prints ? "}}" : "%}";
    read_inside(closing);
    add(prints ? TokenKind::PrintEnd : TokenKind::BlockEnd, closing);
  }

  void read_comment() {
    const size_t end = source_.find("#}", position_ + 2);
    if (end == std::string::npos) fail("a comment {# … is never closed");
    trim_all_ = source_[end - 1] == '-';
    trim_newline_ = source_[end - 1] != '+';
    advance(end + 2 - position_);
  }

  // Finds a {% name %} tag at `from`; returns its length, 0 if there is something else.
  size_t match_simple_block(size_t from, std::string_view name, bool& trims_after) const {
    size_t at = from + 2;
    const auto skip_blanks = [&] {
      at = std::min(source_.find_first_not_of(kSpace, at), source_.size());
    };
    if (source_[at] == '-' || source_[at] == '+') ++at;
    skip_blanks();
    if (source_.compare(at, name.size(), name) != 0) return 0;
    at += name.size();
    skip_blanks();
    trims_after = source_.compare(at, 1, "-") == 0;
    if (trims_after || source_.compare(at, 1, "+") == 0) ++at;
    return source_.compare(at, 2, "%}") == 0 ? at + 2 - from : 0;
  }

  bool read_raw() {
    bool trims = false;
    const size_t opening = match_simple_block(position_, "raw", trims);
    if (opening == 0) return false;
    const size_t begin = position_ + opening;
    for (size_t at = begin; (at = source_.find("{%", at)) != std::string::npos; at += 2) {
      bool trims_after = false;
      const size_t closing = match_simple_block(at, "endraw", trims_after);
      if (closing == 0) continue;
      std::string text = source_.substr(begin, at - begin);
      if (trims)
        text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
      else if (text.starts_with('\n'))
        text.erase(0, 1);
      if (source_[at + 2] == '-') text.erase(text.find_last_not_of(kSpace) + 1);
      if (!text.empty()) add(TokenKind::Text, std::move(text));
      trim_all_ = trims_after;
      trim_newline_ = true;
      advance(at + closing - position_);
      return true;
    }
    fail("{% raw %} is never closed");
  }

  void read_inside(std::string_view closing) {
    const auto is_end = [&](size_t skip) { return rest().substr(skip).starts_with(closing); };
    int open_braces = 0;
    while (true) {
      advance(std::min(rest().find_first_not_of(kSpace), rest().size()));
      if (position_ >= source_.size()) fail("a tag is never closed");
      const char c = source_[position_];
      // A dict's closing brace may stand right before the tag's own: {{ {'a': {}} }}.
      if (is_end(0) && !(c == '}' && open_braces > 0)) {
        trim_newline_ = closing == "%}";
        return advance(2);
      }
      if ((c == '-' || c == '+') && is_end(1)) {
        trim_all_ = c == '-';
        return advance(3);
      }
      if (is_name_start(c))
        read_name();
      else if (is_digit(c))
        read_number();
      else if (c == '"' || c == '\'')
        read_string(c);
      else
        read_sign(open_braces);
    }
  }

  void read_name() {
    size_t length = 1;
    while (length < rest().size() && is_name(rest()[length])) ++length;
    add(TokenKind::Name, std::string(rest().substr(0, length)));
    advance(length);
  }

  void read_number() {
    std::string digits;
    bool is_float = false;
    size_t i = 0;
    const auto at = [&](size_t index) { return index < rest().size() ? rest()[index] : ' '; };
    for (; is_digit(at(i)) || at(i) == '_' || (at(i) == '.' && !is_float && is_digit(at(i + 1)));
         ++i) {
      is_float |= at(i) == '.';
      if (at(i) != '_') digits += at(i);
    }
    if (at(i) == 'e' && (is_digit(at(i + 1)) || (at(i + 1) == '-' && is_digit(at(i + 2))))) {
      is_float = true;
      do digits += at(i++);
      while (is_digit(at(i)) || at(i) == '-');
    }
    add(is_float ? TokenKind::Float : TokenKind::Integer, std::move(digits));
    advance(i);
  }

  void read_string(char quote) {
    std::string out;
    size_t i = 1;
    while (true) {
      if (i >= rest().size()) fail("a string is never closed");
      const char c = rest()[i++];
      if (c == quote) break;
      if (c == '\\' && i < rest().size())
        read_escape(i, out);
      else
        out += c;
    }
    add(TokenKind::String, std::move(out));
    advance(i);
  }

  void read_escape(size_t& i, std::string& out) const {
    const char c = rest()[i++];
    switch (c) {
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'v':
        out += '\v';
        break;
      case 'a':
        out += '\a';
        break;
      case '0':
        out += '\0';
        break;
      case '\n':
        break;
      case '\\':
      case '\'':
      case '"':
        out += c;
        break;
      case 'x':
        append_utf8(out, read_hex(i, 2));
        break;
      case 'u':
        append_utf8(out, read_hex(i, 4));
        break;
      case 'U':
        append_utf8(out, read_hex(i, 8));
        break;
      default:
        out.append("\\").append(1, c);  // as Python keeps an escape that it does not know
    }
  }

  char32_t read_hex(size_t& i, size_t digits) const {
    char32_t value = 0;
    for (size_t end = i + digits; i < end; ++i) {
      const char c = i < rest().size() ? rest()[i] : ' ';
      const bool lower = c >= 'a' && c <= 'f', upper = c >= 'A' && c <= 'F';
      if (!is_digit(c) && !lower && !upper) fail("a string holds a broken \\x or \\u escape");
      value = value << 4 | static_cast<char32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      fail("a string escapes a character that does not exist");
    }
    return value;
  }

  void read_sign(int& open_braces) {
    static constexpr std::array kSigns = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*",
                                          "/",  "%",  "~",  "=",  ">",  "<",  "(", ")", "[",
                                          "]",  "{",  "}",  ".",  ":",  "|",  ","};
    for (const std::string_view sign : kSigns) {
      if (!next_is(sign)) continue;
      if (sign == "{") ++open_braces;
      if (sign == "}") --open_braces;
      add(TokenKind::Sign, std::string(sign));
      return advance(sign.size());
    }
    fail(fmt::format("'{}' is not allowed in an expression",
                     rest().substr(0, utf8_length(rest()[0]))));
  }

  std::string source_;
  const std::string& where_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int line_ = 1;
  bool trim_all_ = false;      // the tag before ended in -%}
  bool trim_newline_ = false;  // the tag before was a block
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& where) {
  return Lexer(source, where).run();
}

}  // namespace snug::tokenizer::jinja
