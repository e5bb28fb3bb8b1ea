// Parses a Jinja source: its tokens are literal text, and the names and operators inside {{ }} and
// {% %}. White space is trimmed with trim_blocks and lstrip_blocks, which chat templates expect.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/template/ast.h"

namespace snug::tokenizer::jinja {

enum class TokenKind {
  Text,
  PrintBegin,
  PrintEnd,
  BlockBegin,
  BlockEnd,
  Name,
  String,
  Integer,
  Float,
  Sign,
  End
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// The last token is End. Throws UserError, beginning with `where`.
std::vector<Token> tokenize(std::string_view source, const std::string& where);

// Peek, take, and fail with the line.
class TokenStream {
 public:
  TokenStream(std::string_view source, const std::string& where)
      : where_(where), tokens_(tokenize(source, where)) {}

  // Counts the parser's recursion depth, so that a file cannot overflow the stack.
  struct Nesting {
    explicit Nesting(TokenStream& stream) : depth(stream.depth_) {
      if (++depth > kMaxNesting) stream.fail("the template is nested too deep");
    }
    ~Nesting() { --depth; }
    int& depth;
  };

  const Token& token(size_t ahead = 0) const {
    return tokens_[std::min(position_ + ahead, tokens_.size() - 1)];
  }
  [[noreturn]] void fail(std::string_view message) const {
    throw UserError("{}: line {}: {}", where_, token().line, message);
  }
  bool is_sign(std::string_view sign) const {
    return token().kind == TokenKind::Sign && token().text == sign;
  }
  bool is_name(std::string_view name) const {
    return token().kind == TokenKind::Name && token().text == name;
  }
  bool take_sign(std::string_view sign) { return is_sign(sign) ? ++position_ : false; }
  bool take_name(std::string_view name) { return is_name(name) ? ++position_ : false; }
  void want_sign(std::string_view sign) {
    if (!take_sign(sign)) fail(fmt::format("expected '{}', found '{}'", sign, token().text));
  }
  void want(TokenKind kind, std::string_view what) {
    if (token().kind != kind) fail(fmt::format("expected {}, found '{}'", what, token().text));
    ++position_;
  }
  std::string want_identifier() {
    const std::string name = token().text;
    want(TokenKind::Name, "a name");
    return name;
  }
  void skip(size_t count = 1) { position_ += count; }

 private:
  static constexpr int kMaxNesting = 150;
  const std::string& where_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int depth_ = 0;
};

// Expressions of a template, by recursive descent with Jinja's precedences, loosest first:
// conditional, or, and, not, comparison, + -, ~, * / // %, **, unary, then . [] () and the filters
// and tests.
// "a, b, c" gives a list, "a" only the expression.
ExpressionPtr parse_tuple(TokenStream& stream);
ExpressionPtr parse_expression(TokenStream& stream);
// Without "… if … else …", which a for loop reads itself.
ExpressionPtr parse_or(TokenStream& stream);
// parse_filter: the filter after a '|', applied to `value`; parse_filters: all filters after a
// value.
ExpressionPtr parse_filter(TokenStream& stream, ExpressionPtr value);
ExpressionPtr parse_filters(TokenStream& stream, ExpressionPtr value);

}  // namespace snug::tokenizer::jinja
