// Statements and scopes; expressions are in jinja_evaluate.cpp.
// SPDX-License-Identifier: Apache-2.0
#include "text/template/interpreter.h"

#include <algorithm>

namespace snug::tokenizer::jinja {
namespace {

using StatementKind = Statement::Kind;

constexpr size_t kMaxOutputBytes = size_t{64} << 20;

}  // namespace

Interpreter::Interpreter(const std::string& where, const Dict& variables, Trace* trace)
    : runtime_(where), trace_(trace) {
  auto& names = globals_->names;
  for (auto& [name, function] : global_functions()) names[name] = std::move(function);
  names["namespace"] =
      Function([this](Runtime&, const Arguments& arguments) { return make_namespace(arguments); });
  for (const auto& [name, value] : variables.entries) names[name] = value;
}

Interpreter::~Interpreter() {
  for (const auto& made : namespaces_) made->entries.clear();
}

Value Interpreter::make_namespace(const Arguments& arguments) {
  Dict made;
  made.is_namespace = true;
  for (const Value& base : arguments.positional) {
    if (base.is_dict()) made.entries = base.dict().entries;
  }
  for (const auto& [key, value] : arguments.named) made.set(key, value);
  Value value(std::move(made));
  namespaces_.push_back(value.shared_dict());
  return value;
}

void Interpreter::print(std::string_view text) {
  runtime_.charge(text.size());
  if (output_.size() + text.size() > kMaxOutputBytes) {
    runtime_.fail("the template prints more than {} MiB", kMaxOutputBytes >> 20);
  }
  output_ += text;
  if (trace_ == nullptr || text.empty()) return;
  const Trace::Piece piece{output_.size(), turn(), in_generation_};
  if (!trace_->pieces.empty() && trace_->pieces.back().is_like(piece))
    trace_->pieces.back() = piece;
  else
    trace_->pieces.push_back(piece);
}

// A loop's own name comes first, then what is set in its body: templates loop over messages, or
// over their numbers.
void Interpreter::bind_turn(const Value& value) {
  if (trace_ == nullptr || !scope_->is_loop || scope_->turn >= 0 || !value.is_dict()) return;
  const auto found = std::ranges::find(trace_->turns, value.shared_dict().get());
  if (found != trace_->turns.end()) scope_->turn = found - trace_->turns.begin();
}

int64_t Interpreter::turn() const {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get())
    if (scope->turn >= 0) return scope->turn;
  return -1;
}

Flow Interpreter::execute(const Block& block) {
  for (const auto& statement : block) {
    const Flow flow = execute(*statement);
    if (flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Flow Interpreter::execute(const Statement& statement) {
  runtime_.set_line(statement.line);
  runtime_.charge();
  switch (statement.kind) {
    case StatementKind::Text:
      print(statement.text);
      break;
    case StatementKind::Print:
      print(to_text(evaluate(*statement.value), runtime_));
      break;
    case StatementKind::If:
      return execute(evaluate(*statement.value).truth() ? statement.body : statement.otherwise);
    case StatementKind::For:
      return execute_for(statement);
    case StatementKind::Set:
      assign_all(statement, evaluate(*statement.value));
      break;
    case StatementKind::SetBlock:
      assign_all(statement, filter_captured(statement));
      break;
    case StatementKind::Filter:
      print(to_text(filter_captured(statement), runtime_));
      break;
    case StatementKind::Macro:
      define_macro(statement);
      break;
    case StatementKind::Break:
      return Flow::Break;
    case StatementKind::Continue:
      return Flow::Continue;
    case StatementKind::Group: {
      const bool outer = std::exchange(in_generation_, true);
      const Flow flow = execute(statement.body);
      in_generation_ = outer;
      return flow;
    }
  }
  return Flow::Normal;
}

Dict Interpreter::loop_variables(const List& items, size_t index) {
  const auto count = static_cast<int64_t>(items.size()), i = static_cast<int64_t>(index);
  Dict loop;
  loop.entries = {{"index", i + 1},
                  {"index0", i},
                  {"first", i == 0},
                  {"last", i + 1 == count},
                  {"length", count},
                  {"revindex", count - i},
                  {"revindex0", count - i - 1}};
  loop.set("previtem", index > 0 ? items[index - 1] : Value(Undefined{"loop.previtem"}));
  loop.set("nextitem",
           index + 1 < items.size() ? items[index + 1] : Value(Undefined{"loop.nextitem"}));
  loop.set("cycle", Function([index](Runtime& runtime, const Arguments& arguments) {
             if (arguments.positional.empty())
               runtime.fail("loop.cycle() takes at least one value");
             return arguments.positional[index % arguments.positional.size()];
           }));
  return loop;
}

Flow Interpreter::execute_for(const Statement& statement) {
  const auto outer = scope_;
  const auto enter = [&](const Value& item) {
    scope_ = std::make_shared<Scope>();
    scope_->parent = outer;
    scope_->is_loop = true;
    assign_all(statement, item);
  };
  List items = iterate(runtime_, evaluate(*statement.value));
  if (statement.condition) {
    List kept;
    for (const Value& item : items) {
      enter(item);
      if (evaluate(*statement.condition).truth()) kept.push_back(item);
    }
    items = std::move(kept);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    enter(items[i]);
    scope_->names["loop"] = loop_variables(items, i);
    if (execute(statement.body) == Flow::Break) break;
  }
  scope_ = outer;
  return items.empty() ? execute(statement.otherwise) : Flow::Normal;
}

void Interpreter::assign(const std::string& target, Value value) {
  const size_t dot = target.find('.');
  if (dot == std::string::npos) {
    bind_turn(value);
    scope_->names[target] = std::move(value);
    return;
  }
  const Value object = look_up(target.substr(0, dot));
  if (!object.is_dict() || !object.dict().is_namespace) {
    runtime_.fail("'{}' is set, but '{}' is not a namespace", target, target.substr(0, dot));
  }
  object.shared_dict()->set(target.substr(dot + 1), std::move(value));
}

void Interpreter::assign_all(const Statement& statement, const Value& value) {
  const auto& targets = statement.targets;
  if (targets.size() == 1) return assign(targets[0], value);
  const List parts = iterate(runtime_, value);
  if (parts.size() != targets.size()) {
    runtime_.fail("{} values for {} names", parts.size(), targets.size());
  }
  for (size_t i = 0; i < targets.size(); ++i) assign(targets[i], parts[i]);
}

// What `body` prints, apart from the output so far and in a scope of its own.
std::string Interpreter::capture(const Block& body) {
  std::string outer_output = std::exchange(output_, "");
  Trace* const outer_trace = std::exchange(trace_, nullptr);
  const auto outer = scope_;
  scope_ = std::make_shared<Scope>();
  scope_->parent = outer;
  execute(body);
  scope_ = outer;
  trace_ = outer_trace;
  return std::exchange(output_, std::move(outer_output));
}

Value Interpreter::filter_captured(const Statement& statement) {
  std::string body = capture(statement.body);
  const auto outer = scope_;
  scope_ = std::make_shared<Scope>();
  scope_->parent = outer;
  scope_->names[kBodyName] = std::move(body);
  Value value = evaluate(*statement.value);
  scope_ = outer;
  return value;
}

void Interpreter::define_macro(const Statement& statement) {
  // Weak, since the scope will hold the macro.
  const std::weak_ptr<Scope> home = scope_;
  scope_->names[statement.text] =
      Function([this, &statement, home](Runtime& runtime, const Arguments& arguments) {
        const auto alive = home.lock();
        if (!alive) runtime.fail("the macro '{}' is called outside of its scope", statement.text);
        return call_macro(statement, alive, arguments);
      });
}

Value Interpreter::call_macro(const Statement& statement, const std::shared_ptr<Scope>& home,
                              const Arguments& arguments) {
  if (++depth_ > kMaxDepth) runtime_.fail("macros are nested more than {} deep", kMaxDepth);
  const auto outer = scope_;
  const auto inner = std::make_shared<Scope>();
  inner->parent = home;
  scope_ = inner;
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    const std::string& name = statement.targets[i];
    const Value* given = arguments.get(i, name);
    if (given)
      inner->names[name] = *given;
    else if (statement.defaults[i])
      inner->names[name] = evaluate(*statement.defaults[i]);
    else
      inner->names[name] = Undefined{name};
  }
  Value printed = capture(statement.body);
  scope_ = outer;
  --depth_;
  return printed;
}

// --- expressions ---

Template::Template(std::string_view source, std::string where)
    : where_(std::move(where)), block_(parse(source, where_)) {}

std::string Template::render(const Dict& variables, Trace* trace) const {
  return Interpreter(where_, variables, trace).run(block_);
}

}  // namespace snug::tokenizer::jinja
