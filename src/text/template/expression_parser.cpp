// SPDX-License-Identifier: Apache-2.0
#include "text/template/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>

namespace snug::tokenizer::jinja {
namespace {

using Kind = Expression::Kind;
constexpr int kMaxTreeDepth = 400;

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  ExpressionPtr make(Kind kind, std::string name = "") const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = stream_.token().line;
    made->name = std::move(name);
    return made;
  }
  void deepen(Expression& parent, const ExpressionPtr& child) const {
    if (!child) return;
    parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kMaxTreeDepth) stream_.fail("an expression is nested too deep");
  }
  void adopt(Expression& parent, ExpressionPtr child) const {
    deepen(parent, child);
    parent.children.push_back(std::move(child));
  }
  ExpressionPtr join(Kind kind, std::string name, ExpressionPtr a, ExpressionPtr b) const {
    auto made = make(kind, std::move(name));
    adopt(*made, std::move(a));
    adopt(*made, std::move(b));
    return made;
  }

  ExpressionPtr parse_tuple() {
    auto first = parse_expression();
    if (!stream_.is_sign(",")) return first;
    auto list = make(Kind::List);
    adopt(*list, std::move(first));
    while (stream_.take_sign(",")) {
      if (stream_.is_sign(")") || stream_.token().kind == TokenKind::PrintEnd ||
          stream_.token().kind == TokenKind::BlockEnd)
        break;
      adopt(*list, parse_expression());
    }
    return list;
  }

  ExpressionPtr parse_expression() {
    const TokenStream::Nesting nesting(stream_);
    auto value = parse_or();
    while (stream_.take_name("if")) {
      auto made = join(Kind::Conditional, "", std::move(value), parse_or());
      adopt(*made, stream_.take_name("else") ? parse_expression() : nullptr);
      value = std::move(made);
    }
    return value;
  }

  ExpressionPtr parse_or() {
    auto left = parse_and();
    while (stream_.take_name("or")) left = join(Kind::Or, "", std::move(left), parse_and());
    return left;
  }

  ExpressionPtr parse_and() {
    auto left = parse_not();
    while (stream_.take_name("and")) left = join(Kind::And, "", std::move(left), parse_not());
    return left;
  }

  ExpressionPtr parse_not() {
    const TokenStream::Nesting nesting(stream_);
    if (!stream_.take_name("not")) return parse_comparison();
    auto made = make(Kind::Not);
    adopt(*made, parse_not());
    return made;
  }

  std::string take_comparison() {
    for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (stream_.take_sign(sign)) return sign;
    }
    if (stream_.take_name("in")) return "in";
    if (stream_.is_name("not") && stream_.token(1).kind == TokenKind::Name &&
        stream_.token(1).text == "in") {
      stream_.skip(2);
      return "not in";
    }
    return "";
  }

  ExpressionPtr parse_comparison() {
    auto first = parse_sum();
    std::string sign = take_comparison();
    if (sign.empty()) return first;
    auto made = make(Kind::Compare);
    adopt(*made, std::move(first));
    for (; !sign.empty(); sign = take_comparison()) {
      made->signs.push_back(sign);
      adopt(*made, parse_sum());
    }
    return made;
  }

  template <class Next>
  ExpressionPtr parse_left_to_right(std::initializer_list<const char*> signs, Next next) {
    auto left = (this->*next)();
    while (true) {
      const auto found =
          std::find_if(signs.begin(), signs.end(), [&](auto s) { return stream_.take_sign(s); });
      if (found == signs.end()) return left;
      left = join(Kind::Arithmetic, *found, std::move(left), (this->*next)());
    }
  }

  ExpressionPtr parse_sum() {
    return parse_left_to_right({"+", "-"}, &ExpressionParser::parse_concatenation);
  }
  ExpressionPtr parse_concatenation() {
    return parse_left_to_right({"~"}, &ExpressionParser::parse_product);
  }
  ExpressionPtr parse_product() {
    return parse_left_to_right({"*", "//", "/", "%"}, &ExpressionParser::parse_power);
  }
  ExpressionPtr parse_power() {
    return parse_left_to_right({"**"}, &ExpressionParser::parse_filtered_unary);
  }
  ExpressionPtr parse_filtered_unary() { return parse_filters(parse_unary()); }

  ExpressionPtr parse_unary() {
    const TokenStream::Nesting nesting(stream_);
    if (stream_.take_sign("-")) {
      auto made = make(Kind::Negate);
      adopt(*made, parse_unary());
      return made;
    }
    if (stream_.take_sign("+")) return parse_unary();
    return parse_postfix(parse_primary());
  }

  ExpressionPtr parse_filters(ExpressionPtr value) {
    while (true) {
      if (stream_.take_sign("|"))
        value = parse_filter(std::move(value));
      else if (stream_.take_name("is"))
        value = parse_test(std::move(value));
      else if (stream_.is_sign("("))
        value = parse_call(std::move(value));
      else
        return value;
    }
  }

  ExpressionPtr parse_filter(ExpressionPtr value) {
    auto made = make(Kind::Filter, stream_.want_identifier());
    adopt(*made, std::move(value));
    if (stream_.is_sign("(")) parse_arguments(*made);
    return made;
  }

  // Tests take their one argument with or without parentheses: divisibleby(3), divisibleby 3.
  ExpressionPtr parse_test(ExpressionPtr value) {
    const bool negated = stream_.take_name("not");
    auto made = make(Kind::Test, stream_.want_identifier());
    adopt(*made, std::move(value));
    const bool is_word = stream_.token().kind == TokenKind::Name && !stream_.is_name("else") &&
                         !stream_.is_name("or") && !stream_.is_name("and") &&
                         !stream_.is_name("is") && !stream_.is_name("if") &&
                         !stream_.is_name("not") && !stream_.is_name("in");
    const bool is_literal =
        stream_.token().kind == TokenKind::String || stream_.token().kind == TokenKind::Integer ||
        stream_.token().kind == TokenKind::Float || stream_.is_sign("[") || stream_.is_sign("{");
    if (stream_.is_sign("("))
      parse_arguments(*made);
    else if (is_word || is_literal)
      adopt(*made, parse_postfix(parse_primary()));
    if (!negated) return made;
    auto inverted = make(Kind::Not);
    adopt(*inverted, std::move(made));
    return inverted;
  }

  void parse_arguments(Expression& call) {
    stream_.want_sign("(");
    while (!stream_.take_sign(")")) {
      const bool named = stream_.token().kind == TokenKind::Name &&
                         stream_.token(1).kind == TokenKind::Sign && stream_.token(1).text == "=";
      if (named) {
        std::string name = stream_.want_identifier();
        stream_.skip();
        call.named.emplace_back(std::move(name), parse_expression());
        deepen(call, call.named.back().second);
      } else {
        adopt(call, parse_expression());
      }
      if (!stream_.is_sign(")")) stream_.want_sign(",");
    }
  }

  ExpressionPtr parse_call(ExpressionPtr callee) {
    auto made = make(Kind::Call);
    adopt(*made, std::move(callee));
    parse_arguments(*made);
    return made;
  }

  ExpressionPtr parse_postfix(ExpressionPtr value) {
    while (true) {
      if (stream_.take_sign(".")) {
        auto made = make(stream_.token().kind == TokenKind::Integer ? Kind::Item : Kind::Attribute);
        adopt(*made, std::move(value));
        if (made->kind == Kind::Item)
          adopt(*made, parse_primary());
        else
          made->name = stream_.want_identifier();
        value = std::move(made);
      } else if (stream_.take_sign("[")) {
        value = parse_subscript(std::move(value));
      } else if (stream_.is_sign("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr parse_subscript(ExpressionPtr value) {
    auto made = make(Kind::Item);
    adopt(*made, std::move(value));
    adopt(*made, stream_.is_sign(":") ? nullptr : parse_expression());
    while (stream_.take_sign(":")) {
      made->kind = Kind::Slice;
      adopt(*made, stream_.is_sign(":") || stream_.is_sign("]") ? nullptr : parse_expression());
    }
    stream_.want_sign("]");
    if (made->children.size() > 4) stream_.fail("a slice has at most three parts");
    if (made->kind == Kind::Slice) made->children.resize(4);
    return made;
  }

  ExpressionPtr parse_primary() {
    const TokenStream::Nesting nesting(stream_);
    switch (stream_.token().kind) {
      case TokenKind::Name:
        return parse_name();
      case TokenKind::String:
        return parse_string();
      case TokenKind::Integer:
        return parse_number<int64_t>();
      case TokenKind::Float:
        return parse_number<double>();
      default:
        break;
    }
    if (stream_.take_sign("(")) return parse_parentheses();
    if (stream_.take_sign("[")) return parse_list();
    if (stream_.take_sign("{")) return parse_dict();
    stream_.fail(fmt::format("expected a value, found '{}'", stream_.token().text));
  }

  ExpressionPtr literal(Value value) const {
    auto made = make(Kind::Literal);
    made->value = std::move(value);
    return made;
  }

  ExpressionPtr parse_name() {
    const std::string name = stream_.want_identifier();
    if (name == "true" || name == "True") return literal(true);
    if (name == "false" || name == "False") return literal(false);
    if (name == "none" || name == "None") return literal(Value());
    return make(Kind::Name, name);
  }

  ExpressionPtr parse_string() {
    std::string text;
    for (; stream_.token().kind == TokenKind::String; stream_.skip()) text += stream_.token().text;
    return literal(std::move(text));
  }

  template <class Number>
  ExpressionPtr parse_number() {
    Number number{};
    const std::string& text = stream_.token().text;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size())
      stream_.fail("a number is out of range");
    stream_.skip();
    return literal(number);
  }

  ExpressionPtr parse_parentheses() {
    if (stream_.take_sign(")")) return make(Kind::List);
    auto inside = parse_tuple();
    stream_.want_sign(")");
    return inside;
  }

  ExpressionPtr parse_list() {
    auto made = make(Kind::List);
    while (!stream_.take_sign("]")) {
      adopt(*made, parse_expression());
      if (!stream_.is_sign("]")) stream_.want_sign(",");
    }
    return made;
  }

  ExpressionPtr parse_dict() {
    auto made = make(Kind::Dict);
    while (!stream_.take_sign("}")) {
      adopt(*made, parse_expression());
      stream_.want_sign(":");
      adopt(*made, parse_expression());
      if (!stream_.is_sign("}")) stream_.want_sign(",");
    }
    return made;
  }

 private:
  TokenStream& stream_;
};

}  // namespace

ExpressionPtr parse_tuple(TokenStream& stream) { return ExpressionParser(stream).parse_tuple(); }
ExpressionPtr parse_expression(TokenStream& stream) {
  return ExpressionParser(stream).parse_expression();
}
ExpressionPtr parse_or(TokenStream& stream) { return ExpressionParser(stream).parse_or(); }
ExpressionPtr parse_filter(TokenStream& stream, ExpressionPtr value) {
  return ExpressionParser(stream).parse_filter(std::move(value));
}
ExpressionPtr parse_filters(TokenStream& stream, ExpressionPtr value) {
  return ExpressionParser(stream).parse_filters(std::move(value));
}

}  // namespace snug::tokenizer::jinja
