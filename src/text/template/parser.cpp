// Statements of a template: the tags and the text between them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/template/ast.h"
#include "text/template/parser.h"

namespace snug::tokenizer::jinja {
namespace {

class Parser {
 public:
  Parser(std::string_view source, const std::string& where) : stream_(source, where) {}

  Block run() {
    Block block = parse_block({});
    if (stream_.token().kind != TokenKind::End)
      stream_.fail("this tag closes a block that was not opened");
    return block;
  }

 private:
  // Up to a {% word %} with one of the given words, whose BlockBegin is consumed and word is next.
  Block parse_block(std::initializer_list<std::string_view> enders) {
    const TokenStream::Nesting nesting(stream_);
    Block block;
    while (stream_.token().kind != TokenKind::End) {
      if (stream_.token().kind == TokenKind::Text) {
        block.push_back(statement(Statement::Kind::Text));
        block.back()->text = stream_.token().text;
        stream_.skip();
      } else if (stream_.token().kind == TokenKind::PrintBegin) {
        stream_.skip();
        block.push_back(statement(Statement::Kind::Print));
        block.back()->value = parse_tuple(stream_);
        stream_.want(TokenKind::PrintEnd, "'}}'");
      } else {
        stream_.want(TokenKind::BlockBegin, "'{%'");
        if (std::find(enders.begin(), enders.end(), stream_.token().text) != enders.end())
          return block;
        block.push_back(parse_tag());
      }
    }
    if (enders.size() != 0) {
      stream_.fail(
          fmt::format("the template ends where {{% {} %}} is expected", *(enders.end() - 1)));
    }
    return block;
  }

  std::unique_ptr<Statement> statement(Statement::Kind kind) const {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = stream_.token().line;
    return made;
  }

  void end_tag() { stream_.want(TokenKind::BlockEnd, "'%}'"); }
  Block parse_body(std::string_view ender) {
    end_tag();
    Block body = parse_block({ender});
    stream_.skip();
    end_tag();
    return body;
  }

  std::unique_ptr<Statement> parse_tag() {
    if (stream_.take_name("if")) return parse_if();
    if (stream_.take_name("for")) return parse_for();
    if (stream_.take_name("set")) return parse_set();
    if (stream_.take_name("macro")) return parse_macro();
    if (stream_.take_name("filter")) return parse_filter_block();
    if (stream_.is_name("break") || stream_.is_name("continue")) {
      const bool is_break = stream_.take_name("break") || !stream_.take_name("continue");
      if (loop_depth_ == 0) stream_.fail("break or continue outside of a loop");
      auto made = statement(is_break ? Statement::Kind::Break : Statement::Kind::Continue);
      end_tag();
      return made;
    }
    if (stream_.take_name("generation")) {
      auto made = statement(Statement::Kind::Group);
      made->body = parse_body("endgeneration");
      return made;
    }
    stream_.fail(
        fmt::format("the tag '{}' is not known; known: if, for, set, macro, filter, raw, break, "
                    "continue, generation",
                    stream_.token().text));
  }

  std::unique_ptr<Statement> parse_if() {
    const TokenStream::Nesting nesting(stream_);
    auto made = statement(Statement::Kind::If);
    made->value = parse_tuple(stream_);
    end_tag();
    made->body = parse_block({"elif", "else", "endif"});
    if (stream_.take_name("elif")) {
      made->otherwise.push_back(parse_if());  // takes the shared endif with it
      return made;
    }
    if (stream_.take_name("else")) {
      end_tag();
      made->otherwise = parse_block({"endif"});
    }
    stream_.skip();
    end_tag();
    return made;
  }

  std::unique_ptr<Statement> parse_for() {
    auto made = statement(Statement::Kind::For);
    const bool parenthesized = stream_.take_sign("(");
    do made->targets.push_back(stream_.want_identifier());
    while (stream_.take_sign(","));
    if (parenthesized) stream_.want_sign(")");
    if (!stream_.take_name("in")) stream_.fail("expected 'in' in a for loop");
    made->value = parse_or(stream_);
    if (stream_.take_name("if")) made->condition = parse_expression(stream_);
    if (stream_.is_name("recursive"))
      stream_.fail("recursive loops are not supported; use a macro");
    end_tag();
    ++loop_depth_;
    made->body = parse_block({"else", "endfor"});
    --loop_depth_;
    if (stream_.take_name("else")) {
      end_tag();
      made->otherwise = parse_block({"endfor"});
    }
    stream_.skip();
    end_tag();
    return made;
  }

  std::unique_ptr<Statement> parse_set() {
    auto made = statement(Statement::Kind::Set);
    do {
      std::string target = stream_.want_identifier();
      if (stream_.take_sign(".")) target += "." + stream_.want_identifier();
      made->targets.push_back(std::move(target));
    } while (stream_.take_sign(","));
    if (stream_.take_sign("=")) {
      made->value = parse_tuple(stream_);
      end_tag();
      return made;
    }
    made->kind = Statement::Kind::SetBlock;
    made->value = parse_filters(stream_, body_name());
    made->body = parse_body("endset");
    return made;
  }

  std::unique_ptr<Statement> parse_filter_block() {
    auto made = statement(Statement::Kind::Filter);
    made->value = parse_filter(stream_, body_name());
    made->value = parse_filters(stream_, std::move(made->value));
    made->body = parse_body("endfilter");
    return made;
  }

  std::unique_ptr<Statement> parse_macro() {
    auto made = statement(Statement::Kind::Macro);
    made->text = stream_.want_identifier();
    stream_.want_sign("(");
    while (!stream_.take_sign(")")) {
      made->targets.push_back(stream_.want_identifier());
      made->defaults.push_back(stream_.take_sign("=") ? parse_expression(stream_) : nullptr);
      if (!stream_.is_sign(")")) stream_.want_sign(",");
    }
    const int outer_loops = std::exchange(loop_depth_, 0);
    made->body = parse_body("endmacro");
    loop_depth_ = outer_loops;
    return made;
  }

  ExpressionPtr body_name() const {
    auto made = std::make_unique<Expression>();
    made->kind = Expression::Kind::Name;
    made->line = stream_.token().line;
    made->name = kBodyName;
    return made;
  }

  TokenStream stream_;
  int loop_depth_ = 0;
};

}  // namespace

Block parse(std::string_view source, const std::string& where) {
  return Parser(source, where).run();
}

}  // namespace snug::tokenizer::jinja
