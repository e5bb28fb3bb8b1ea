// SPDX-License-Identifier: Apache-2.0
#include "text/template/keys.h"

namespace snug::tokenizer::jinja {
namespace {

using Kind = Expression::Kind;

class Finder {
 public:
  Keys run(const Block& block) {
    find_namespaces(block);
    look(block);
    return std::move(keys_);
  }

 private:
  void find_namespaces(const Block& block) {
    for (const auto& statement : block) {
      const Expression* value = statement->value.get();
      if (statement->kind == Statement::Kind::Set && value != nullptr &&
          value->kind == Kind::Call && value->children[0]->name == "namespace")
        namespaces_.insert(statement->targets.begin(), statement->targets.end());
      find_namespaces(statement->body);
      find_namespaces(statement->otherwise);
    }
  }

  void look(const Block& block) {
    for (const auto& statement : block) {
      keys_.marks_answers |= statement->kind == Statement::Kind::Group;
      look(statement->value);
      look(statement->condition);
      for (const ExpressionPtr& value : statement->defaults) look(value);
      look(statement->body);
      look(statement->otherwise);
    }
  }

  void look(const ExpressionPtr& expression) {
    if (!expression) return;
    const Expression& e = *expression;
    if (e.kind == Kind::Name) keys_.variables.insert(e.name);
    if (const std::string* key = key_of(e)) keys_.asked.insert(*key);
    if (e.kind == Kind::Test && e.name == "none")
      if (const std::string* key = key_of(*e.children[0])) keys_.asked_whether_none.insert(*key);
    for (const ExpressionPtr& child : e.children) look(child);
    for (const auto& [name, value] : e.named) look(value);
  }

  // The key that an expression looks up; null: it is no such expression.
  const std::string* key_of(const Expression& e) const {
    if (e.kind == Kind::Attribute) {
      const Expression& object = *e.children[0];
      return object.kind == Kind::Name && namespaces_.contains(object.name) ? nullptr : &e.name;
    }
    if (e.kind == Kind::Item) return text_of(e.children[1]);
    if (e.kind == Kind::Compare && e.signs[0].ends_with("in")) return text_of(e.children[0]);
    const bool gets = e.kind == Kind::Call && e.children.size() > 1 &&
                      e.children[0]->kind == Kind::Attribute && e.children[0]->name == "get";
    return gets ? text_of(e.children[1]) : nullptr;
  }

  static const std::string* text_of(const ExpressionPtr& e) {
    return e && e->kind == Kind::Literal && e->value.is_string() ? &e->value.string() : nullptr;
  }

  std::set<std::string> namespaces_;
  Keys keys_;
};

}  // namespace

Keys keys_of(const Block& block) { return Finder().run(block); }

}  // namespace snug::tokenizer::jinja
