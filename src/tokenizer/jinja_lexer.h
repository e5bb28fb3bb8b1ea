// A Jinja source as tokens: stretches of text, and the words and signs inside {{ }} and {% %}.
// White space is settled here, with trim_blocks and lstrip_blocks on, as chat templates are written
// for.
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
