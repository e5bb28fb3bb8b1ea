// A parsed template. One node type for expressions and one for statements, each with a kind, so
// that the interpreter is two switches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace snug::tokenizer::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    Literal,    // value
    Name,       // name
    List,       // children
    Dict,       // children: key, value, key, value, …
    Attribute,  // children[0] . name
    Item,       // children[0] [ children[1] ]
    Slice,      // children[0] [ children[1] : children[2] : children[3] ], null where left out
    Call,       // children[0] ( the rest, named )
    Filter,     // children[0] | name ( the rest, named )
    Test,       // children[0] is name ( the rest, named )
    Not,        // children[0]
    Negate,     // children[0]
    And,
    Or,           // children[0], children[1]
    Conditional,  // children[0] if children[1] else children[2], which may be null
    Compare,      // children[0] signs[0] children[1] signs[1] …, all of them true, as in Python
    Arithmetic    // children[0] name children[1]
  };
  Kind kind;
  int line = 1;
  int depth = 1;  // of the tree below, bounded by the parser: evaluating and destroying recurse
  std::string name;
  Value value;
  std::vector<ExpressionPtr> children;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> signs;  // == != < <= > >= in, "not in"
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Statement {
  enum class Kind {
    Text,      // text
    Print,     // value
    If,        // value, body, otherwise
    For,       // targets in value if condition; body, otherwise
    Set,       // targets = value
    SetBlock,  // targets = what body prints, through the filters in value
    Macro,     // text(targets = defaults): body
    Filter,    // what body prints, through the filters in value
    Break,
    Continue,
    Group  // body; {% generation %}
  };
  Kind kind;
  int line = 1;
  std::string text;
  std::vector<std::string> targets;  // "name", or "namespace.name" for Set
  std::vector<ExpressionPtr> defaults;
  ExpressionPtr value, condition;
  Block body, otherwise;
};

// Name of the expression that stands for the printed body in SetBlock and Filter.
inline constexpr const char* kBodyName = " body";

Block parse(std::string_view source, const std::string& where);

}  // namespace snug::tokenizer::jinja
