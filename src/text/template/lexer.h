// Splits a Jinja source into tokens: literal text, and the names and operators inside {{ }} and {%
// %}. White space is trimmed here, with trim_blocks and lstrip_blocks, which chat templates expect.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

}  // namespace snug::tokenizer::jinja
