// A recursive-descent parser with Jinja's precedences, loosest first: conditional, or, and, not,
// comparison, + -, ~, * / // %, **, unary, then . [] () and the filters and tests.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_lexer.h"

namespace snug::tokenizer::jinja {
namespace {

using Kind = Expression::Kind;
constexpr int kMaxNesting = 150;
constexpr int kMaxTreeDepth = 400;

class Parser {
 public:
  Parser(std::string_view source, const std::string& where)
      : where_(where), tokens_(tokenize(source, where)) {}

  Block run() {
    Block block = parse_block({});
    if (token().kind != TokenKind::End) fail("a block ends that was not begun");
    return block;
  }

 private:
  // Counts how deep the parser has called itself; a file must not overflow our stack.
  struct Nesting {
    explicit Nesting(Parser& parser) : depth(parser.depth_) {
      if (++depth > kMaxNesting) parser.fail("the template is nested too deep");
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
  ExpressionPtr make(Kind kind, std::string name = "") const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = token().line;
    made->name = std::move(name);
    return made;
  }
  void deepen(Expression& parent, const ExpressionPtr& child) const {
    if (!child) return;
    parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kMaxTreeDepth) fail("an expression is nested too deep");
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

  // --- statements ---

  // Up to a {% word %} with one of the given words, whose BlockBegin is consumed and word is next.
  Block parse_block(std::initializer_list<std::string_view> enders) {
    const Nesting nesting(*this);
    Block block;
    while (token().kind != TokenKind::End) {
      if (token().kind == TokenKind::Text) {
        block.push_back(statement(Statement::Kind::Text));
        block.back()->text = token().text;
        ++position_;
      } else if (token().kind == TokenKind::PrintBegin) {
        ++position_;
        block.push_back(statement(Statement::Kind::Print));
        block.back()->value = parse_tuple();
        want(TokenKind::PrintEnd, "'}}'");
      } else {
        want(TokenKind::BlockBegin, "'{%'");
        if (std::find(enders.begin(), enders.end(), token().text) != enders.end()) return block;
        block.push_back(parse_tag());
      }
    }
    if (enders.size() != 0) {
      fail(fmt::format("the template ends where {{% {} %}} is expected", *(enders.end() - 1)));
    }
    return block;
  }

  std::unique_ptr<Statement> statement(Statement::Kind kind) const {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = token().line;
    return made;
  }

  void end_tag() { want(TokenKind::BlockEnd, "'%}'"); }
  Block parse_body(std::string_view ender) {
    end_tag();
    Block body = parse_block({ender});
    ++position_;
    end_tag();
    return body;
  }

  std::unique_ptr<Statement> parse_tag() {
    if (take_name("if")) return parse_if();
    if (take_name("for")) return parse_for();
    if (take_name("set")) return parse_set();
    if (take_name("macro")) return parse_macro();
    if (take_name("filter")) return parse_filter_block();
    if (take_name("break") || take_name("continue")) {
      const bool is_break = tokens_[position_ - 1].text == "break";
      if (loop_depth_ == 0) fail("break or continue outside of a loop");
      auto made = statement(is_break ? Statement::Kind::Break : Statement::Kind::Continue);
      end_tag();
      return made;
    }
    if (take_name("generation")) {
      auto made = statement(Statement::Kind::Group);
      made->body = parse_body("endgeneration");
      return made;
    }
    fail(
        fmt::format("the tag '{}' is not known; known: if, for, set, macro, filter, raw, break, "
                    "continue, generation",
                    token().text));
  }

  std::unique_ptr<Statement> parse_if() {
    const Nesting nesting(*this);
    auto made = statement(Statement::Kind::If);
    made->value = parse_tuple();
    end_tag();
    made->body = parse_block({"elif", "else", "endif"});
    if (take_name("elif")) {
      made->otherwise.push_back(parse_if());  // takes the shared endif with it
      return made;
    }
    if (take_name("else")) {
      end_tag();
      made->otherwise = parse_block({"endif"});
    }
    ++position_;
    end_tag();
    return made;
  }

  std::unique_ptr<Statement> parse_for() {
    auto made = statement(Statement::Kind::For);
    const bool parenthesized = take_sign("(");
    do made->targets.push_back(want_identifier());
    while (take_sign(","));
    if (parenthesized) want_sign(")");
    if (!take_name("in")) fail("expected 'in' in a for loop");
    made->value = parse_or();
    if (take_name("if")) made->condition = parse_expression();
    if (is_name("recursive")) fail("recursive loops are not supported; use a macro");
    end_tag();
    ++loop_depth_;
    made->body = parse_block({"else", "endfor"});
    --loop_depth_;
    if (take_name("else")) {
      end_tag();
      made->otherwise = parse_block({"endfor"});
    }
    ++position_;
    end_tag();
    return made;
  }

  std::unique_ptr<Statement> parse_set() {
    auto made = statement(Statement::Kind::Set);
    do {
      std::string target = want_identifier();
      if (take_sign(".")) target += "." + want_identifier();
      made->targets.push_back(std::move(target));
    } while (take_sign(","));
    if (take_sign("=")) {
      made->value = parse_tuple();
      end_tag();
      return made;
    }
    made->kind = Statement::Kind::SetBlock;
    made->value = parse_filters(make(Kind::Name, kBodyName));
    made->body = parse_body("endset");
    return made;
  }

  std::unique_ptr<Statement> parse_filter_block() {
    auto made = statement(Statement::Kind::Filter);
    made->value = parse_filter(make(Kind::Name, kBodyName));
    made->value = parse_filters(std::move(made->value));
    made->body = parse_body("endfilter");
    return made;
  }

  std::unique_ptr<Statement> parse_macro() {
    auto made = statement(Statement::Kind::Macro);
    made->text = want_identifier();
    want_sign("(");
    while (!take_sign(")")) {
      made->targets.push_back(want_identifier());
      made->defaults.push_back(take_sign("=") ? parse_expression() : nullptr);
      if (!is_sign(")")) want_sign(",");
    }
    const int outer_loops = std::exchange(loop_depth_, 0);
    made->body = parse_body("endmacro");
    loop_depth_ = outer_loops;
    return made;
  }

  // --- expressions ---

  ExpressionPtr parse_tuple() {
    auto first = parse_expression();
    if (!is_sign(",")) return first;
    auto list = make(Kind::List);
    adopt(*list, std::move(first));
    while (take_sign(",")) {
      if (is_sign(")") || token().kind == TokenKind::PrintEnd ||
          token().kind == TokenKind::BlockEnd)
        break;
      adopt(*list, parse_expression());
    }
    return list;
  }

  ExpressionPtr parse_expression() {
    const Nesting nesting(*this);
    auto value = parse_or();
    while (take_name("if")) {
      auto made = join(Kind::Conditional, "", std::move(value), parse_or());
      adopt(*made, take_name("else") ? parse_expression() : nullptr);
      value = std::move(made);
    }
    return value;
  }

  ExpressionPtr parse_or() {
    auto left = parse_and();
    while (take_name("or")) left = join(Kind::Or, "", std::move(left), parse_and());
    return left;
  }

  ExpressionPtr parse_and() {
    auto left = parse_not();
    while (take_name("and")) left = join(Kind::And, "", std::move(left), parse_not());
    return left;
  }

  ExpressionPtr parse_not() {
    const Nesting nesting(*this);
    if (!take_name("not")) return parse_comparison();
    auto made = make(Kind::Not);
    adopt(*made, parse_not());
    return made;
  }

  std::string take_comparison() {
    for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (take_sign(sign)) return sign;
    }
    if (take_name("in")) return "in";
    if (is_name("not") && token(1).kind == TokenKind::Name && token(1).text == "in") {
      position_ += 2;
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
          std::find_if(signs.begin(), signs.end(), [&](auto s) { return take_sign(s); });
      if (found == signs.end()) return left;
      left = join(Kind::Arithmetic, *found, std::move(left), (this->*next)());
    }
  }

  ExpressionPtr parse_sum() {
    return parse_left_to_right({"+", "-"}, &Parser::parse_concatenation);
  }
  ExpressionPtr parse_concatenation() { return parse_left_to_right({"~"}, &Parser::parse_product); }
  ExpressionPtr parse_product() {
    return parse_left_to_right({"*", "//", "/", "%"}, &Parser::parse_power);
  }
  ExpressionPtr parse_power() { return parse_left_to_right({"**"}, &Parser::parse_filtered_unary); }
  ExpressionPtr parse_filtered_unary() { return parse_filters(parse_unary()); }

  ExpressionPtr parse_unary() {
    const Nesting nesting(*this);
    if (take_sign("-")) {
      auto made = make(Kind::Negate);
      adopt(*made, parse_unary());
      return made;
    }
    if (take_sign("+")) return parse_unary();
    return parse_postfix(parse_primary());
  }

  ExpressionPtr parse_filters(ExpressionPtr value) {
    while (true) {
      if (take_sign("|"))
        value = parse_filter(std::move(value));
      else if (take_name("is"))
        value = parse_test(std::move(value));
      else if (is_sign("("))
        value = parse_call(std::move(value));
      else
        return value;
    }
  }

  ExpressionPtr parse_filter(ExpressionPtr value) {
    auto made = make(Kind::Filter, want_identifier());
    adopt(*made, std::move(value));
    if (is_sign("(")) parse_arguments(*made);
    return made;
  }

  // Tests take their one argument with or without parentheses: divisibleby(3), divisibleby 3.
  ExpressionPtr parse_test(ExpressionPtr value) {
    const bool negated = take_name("not");
    auto made = make(Kind::Test, want_identifier());
    adopt(*made, std::move(value));
    const bool is_word = token().kind == TokenKind::Name && !is_name("else") && !is_name("or") &&
                         !is_name("and") && !is_name("is") && !is_name("if") && !is_name("not") &&
                         !is_name("in");
    const bool is_literal = token().kind == TokenKind::String ||
                            token().kind == TokenKind::Integer ||
                            token().kind == TokenKind::Float || is_sign("[") || is_sign("{");
    if (is_sign("("))
      parse_arguments(*made);
    else if (is_word || is_literal)
      adopt(*made, parse_postfix(parse_primary()));
    if (!negated) return made;
    auto inverted = make(Kind::Not);
    adopt(*inverted, std::move(made));
    return inverted;
  }

  void parse_arguments(Expression& call) {
    want_sign("(");
    while (!take_sign(")")) {
      const bool named = token().kind == TokenKind::Name && token(1).kind == TokenKind::Sign &&
                         token(1).text == "=";
      if (named) {
        std::string name = want_identifier();
        ++position_;
        call.named.emplace_back(std::move(name), parse_expression());
        deepen(call, call.named.back().second);
      } else {
        adopt(call, parse_expression());
      }
      if (!is_sign(")")) want_sign(",");
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
      if (take_sign(".")) {
        auto made = make(token().kind == TokenKind::Integer ? Kind::Item : Kind::Attribute);
        adopt(*made, std::move(value));
        if (made->kind == Kind::Item)
          adopt(*made, parse_primary());
        else
          made->name = want_identifier();
        value = std::move(made);
      } else if (take_sign("[")) {
        value = parse_subscript(std::move(value));
      } else if (is_sign("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr parse_subscript(ExpressionPtr value) {
    auto made = make(Kind::Item);
    adopt(*made, std::move(value));
    adopt(*made, is_sign(":") ? nullptr : parse_expression());
    while (take_sign(":")) {
      made->kind = Kind::Slice;
      adopt(*made, is_sign(":") || is_sign("]") ? nullptr : parse_expression());
    }
    want_sign("]");
    if (made->children.size() > 4) fail("a slice has at most three parts");
    if (made->kind == Kind::Slice) made->children.resize(4);
    return made;
  }

  ExpressionPtr parse_primary() {
    const Nesting nesting(*this);
    switch (token().kind) {
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
    if (take_sign("(")) return parse_parentheses();
    if (take_sign("[")) return parse_list();
    if (take_sign("{")) return parse_dict();
    fail(fmt::format("expected a value, found '{}'", token().text));
  }

  ExpressionPtr literal(Value value) {
    auto made = make(Kind::Literal);
    made->value = std::move(value);
    return made;
  }

  ExpressionPtr parse_name() {
    const std::string name = want_identifier();
    if (name == "true" || name == "True") return literal(true);
    if (name == "false" || name == "False") return literal(false);
    if (name == "none" || name == "None") return literal(Value());
    return make(Kind::Name, name);
  }

  ExpressionPtr parse_string() {
    std::string text;
    for (; token().kind == TokenKind::String; ++position_) text += token().text;
    return literal(std::move(text));
  }

  template <class Number>
  ExpressionPtr parse_number() {
    Number number{};
    const std::string& text = token().text;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size()) fail("a number is out of range");
    ++position_;
    return literal(number);
  }

  ExpressionPtr parse_parentheses() {
    if (take_sign(")")) return make(Kind::List);
    auto inside = parse_tuple();
    want_sign(")");
    return inside;
  }

  ExpressionPtr parse_list() {
    auto made = make(Kind::List);
    while (!take_sign("]")) {
      adopt(*made, parse_expression());
      if (!is_sign("]")) want_sign(",");
    }
    return made;
  }

  ExpressionPtr parse_dict() {
    auto made = make(Kind::Dict);
    while (!take_sign("}")) {
      adopt(*made, parse_expression());
      want_sign(":");
      adopt(*made, parse_expression());
      if (!is_sign("}")) want_sign(",");
    }
    return made;
  }

  const std::string& where_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int depth_ = 0;
  int loop_depth_ = 0;
};

}  // namespace

Block parse(std::string_view source, const std::string& where) {
  return Parser(source, where).run();
}

}  // namespace snug::tokenizer::jinja
