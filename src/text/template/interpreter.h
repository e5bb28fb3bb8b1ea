// Runs a parsed template once. Statements print to one output; for loops, macros and captured
// blocks open new scopes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/runtime.h"
#include "text/template/value.h"

namespace snug::tokenizer::jinja {

// Global functions that do not need the interpreter: range, raise_exception, strftime_now, dict.
std::vector<std::pair<std::string, Function>> global_functions();

struct Scope {
  std::shared_ptr<Scope> parent;
  std::unordered_map<std::string, Value> names;
  bool is_loop = false;
  int64_t turn = -1;  // of Trace::turns, to which a name of this loop is bound; -1: none
};

// Which turn of a conversation each stretch of the text was printed for, and what stands inside
// {% generation %}. Macros and captured blocks count where their text is printed.
struct Trace {
  struct Piece {
    size_t end;    // in bytes; it begins where the one before ends
    int64_t turn;  // -1: none
    bool generated;
    bool is_like(const Piece& other) const {
      return turn == other.turn && generated == other.generated;
    }
  };
  std::vector<const Dict*> turns;  // given: the messages
  std::vector<Piece> pieces;       // found
};

enum class Flow { Normal, Break, Continue };

class Interpreter {
 public:
  // `trace`: filled where given.
  Interpreter(const std::string& where, const Dict& variables, Trace* trace);
  ~Interpreter();
  std::string run(const Block& block) {
    execute(block);
    return std::move(output_);
  }

 private:
  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow execute_for(const Statement& statement);
  void assign(const std::string& target, Value value);
  void assign_all(const Statement& statement, const Value& value);
  void define_macro(const Statement& statement);
  Value call_macro(const Statement& statement, const std::shared_ptr<Scope>& home,
                   const Arguments& arguments);
  std::string capture(const Block& body);
  Value filter_captured(const Statement& statement);
  void print(std::string_view text);
  void bind_turn(const Value& value);
  int64_t turn() const;

  Value evaluate(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_call(const Expression& expression);
  Value evaluate_filter(const Expression& expression);
  bool evaluate_test(const Expression& expression);
  bool compare(const Expression& expression);
  bool holds(std::string_view sign, const Value& a, const Value& b);
  Value negate(const Value& value);
  Value evaluate_or_none(const ExpressionPtr& expression) {
    return expression ? evaluate(*expression) : Value();
  }
  Arguments evaluate_arguments(const Expression& expression);
  Value look_up(const std::string& name);
  Value make_namespace(const Arguments& arguments);
  Dict loop_variables(const List& items, size_t index);

  Runtime runtime_;
  std::shared_ptr<Scope> globals_ = std::make_shared<Scope>();
  std::shared_ptr<Scope> scope_ = globals_;
  std::string output_;
  int depth_ = 0;  // of macro calls
  Trace* trace_;   // null inside what is captured
  bool in_generation_ = false;
  // A namespace may contain itself; clearing all of them at the end frees such cycles.
  std::vector<std::shared_ptr<Dict>> namespaces_;
};

// A small, safe Jinja for chat templates, with limits on work and depth and access only to the
// given variables. White space is handled as in transformers (trim_blocks, lstrip_blocks).
class Template {
 public:
  // Throws UserError, beginning with `where`, if the source does not parse.
  Template(std::string_view source, std::string where);
  // Thread-safe. Throws UserError for errors in the template and for raise_exception.
  std::string render(const Dict& variables, Trace* trace = nullptr) const;
  const Block& block() const { return block_; }

 private:
  std::string where_;
  Block block_;
};

}  // namespace snug::tokenizer::jinja
