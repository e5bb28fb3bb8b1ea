// SPDX-License-Identifier: Apache-2.0
#include <ctime>
#include <memory>
#include <unordered_map>
#include <utility>

#include "tokenizer/jinja.h"
#include "tokenizer/jinja_runtime.h"

namespace snug::tokenizer::jinja {
namespace {

using ExprKind = Expression::Kind;
using Kind = Statement::Kind;

constexpr size_t kMaxOutputBytes = size_t{64} << 20;
constexpr int64_t kMaxRange = 1'000'000;

struct Scope {
  std::shared_ptr<Scope> parent;
  std::unordered_map<std::string, Value> names;
};

enum class Flow { Normal, Break, Continue };

class Interpreter {
 public:
  Interpreter(const std::string& where, const Dict& variables);
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
  int depth_ = 0;  // of macro calls and nested statements
  // A namespace may come to hold itself; emptying all of them at the end frees such rings.
  std::vector<std::shared_ptr<Dict>> namespaces_;
};

Value make_range(Runtime& runtime, const Arguments& arguments) {
  int64_t bounds[3] = {0, 0, 1};  // start, stop, step
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3) runtime.fail("range() takes one to three numbers");
  for (size_t i = 0; i < count; ++i) {
    if (!arguments.positional[i].is_integer()) runtime.fail("range() takes whole numbers");
    bounds[count == 1 ? 1 : i] = arguments.positional[i].integer();
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) runtime.fail("range() with a step of 0");
  List out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(out.size()) >= kMaxRange) {
      runtime.fail("range() of more than {} numbers", kMaxRange);
    }
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  runtime.charge(out.size() * 16);
  return out;
}

Value raise_exception(Runtime& runtime, const Arguments& arguments) {
  const Value* message = arguments.get(0, "message");
  runtime.fail("the chat template refuses this conversation: {}",
               message ? to_text(*message, runtime) : "no reason given");
}

Value strftime_now(Runtime& runtime, const Arguments& arguments) {
  const Value* format = arguments.get(0, "format");
  if (!format || !format->is_string()) runtime.fail("strftime_now() takes a format");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[256];
  return std::string(buffer,
                     std::strftime(buffer, sizeof(buffer), format->string().c_str(), &local));
}

Interpreter::Interpreter(const std::string& where, const Dict& variables) : runtime_(where) {
  auto& names = globals_->names;
  names["range"] = Function(make_range);
  names["raise_exception"] = Function(raise_exception);
  names["strftime_now"] = Function(strftime_now);
  names["namespace"] =
      Function([this](Runtime&, const Arguments& arguments) { return make_namespace(arguments); });
  names["dict"] = Function([](Runtime&, const Arguments& arguments) {
    Dict made;
    for (const auto& [key, value] : arguments.named) made.set(key, value);
    return Value(std::move(made));
  });
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

// --- statements ---

void Interpreter::print(std::string_view text) {
  runtime_.charge(text.size());
  if (output_.size() + text.size() > kMaxOutputBytes) {
    runtime_.fail("the template prints more than {} MiB", kMaxOutputBytes >> 20);
  }
  output_ += text;
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
    case Kind::Text:
      print(statement.text);
      break;
    case Kind::Print:
      print(to_text(evaluate(*statement.value), runtime_));
      break;
    case Kind::If:
      return execute(evaluate(*statement.value).truth() ? statement.body : statement.otherwise);
    case Kind::For:
      return execute_for(statement);
    case Kind::Set:
      assign_all(statement, evaluate(*statement.value));
      break;
    case Kind::SetBlock:
      assign_all(statement, filter_captured(statement));
      break;
    case Kind::Filter:
      print(to_text(filter_captured(statement), runtime_));
      break;
    case Kind::Macro:
      define_macro(statement);
      break;
    case Kind::Break:
      return Flow::Break;
    case Kind::Continue:
      return Flow::Continue;
    case Kind::Group:
      return execute(statement.body);
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
  const auto outer = scope_;
  scope_ = std::make_shared<Scope>();
  scope_->parent = outer;
  execute(body);
  scope_ = outer;
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
  if (++depth_ > kMaxDepth) runtime_.fail("macros call each other more than {} deep", kMaxDepth);
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

Value Interpreter::look_up(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    const auto found = scope->names.find(name);
    if (found != scope->names.end()) return found->second;
  }
  return Undefined{name};
}

Value Interpreter::evaluate(const Expression& e) {
  runtime_.set_line(e.line);
  runtime_.charge();
  const auto child = [&](size_t index) { return evaluate(*e.children[index]); };
  switch (e.kind) {
    case ExprKind::Literal:
      return e.value;
    case ExprKind::Name:
      return look_up(e.name);
    case ExprKind::List: {
      List items;
      for (const auto& item : e.children) items.push_back(evaluate(*item));
      return items;
    }
    case ExprKind::Dict:
      return evaluate_dict(e);
    case ExprKind::Attribute:
      return get_attribute(runtime_, child(0), e.name);
    case ExprKind::Item: {
      const Value object = child(0);
      return get_item(runtime_, object, child(1));
    }
    case ExprKind::Slice: {
      const Value object = child(0);
      return get_slice(runtime_, object, evaluate_or_none(e.children[1]),
                       evaluate_or_none(e.children[2]), evaluate_or_none(e.children[3]));
    }
    case ExprKind::Call:
      return evaluate_call(e);
    case ExprKind::Filter:
      return evaluate_filter(e);
    case ExprKind::Test:
      return evaluate_test(e);
    case ExprKind::Not:
      return !child(0).truth();
    case ExprKind::Negate:
      return negate(child(0));
    case ExprKind::And: {
      Value left = child(0);
      return left.truth() ? child(1) : left;
    }
    case ExprKind::Or: {
      Value left = child(0);
      return left.truth() ? left : child(1);
    }
    case ExprKind::Conditional:
      if (child(1).truth()) return child(0);
      return e.children[2] ? child(2) : Value(Undefined{"an if without else"});
    case ExprKind::Compare:
      return compare(e);
    case ExprKind::Arithmetic: {
      const Value left = child(0);
      return operate(runtime_, e.name, left, child(1));
    }
  }
  return {};
}

Value Interpreter::negate(const Value& value) {
  if (value.is<double>()) return -value.number();
  if (!value.is_integer()) runtime_.fail("'-' before {}", value.type_name());
  return operate(runtime_, "-", int64_t{0}, value);
}

Value Interpreter::evaluate_dict(const Expression& e) {
  Dict made;
  for (size_t i = 0; i + 1 < e.children.size(); i += 2) {
    const Value key = evaluate(*e.children[i]);
    if (!key.is_string())
      runtime_.fail("a dict key is {}; only strings are supported", key.type_name());
    made.set(key.string(), evaluate(*e.children[i + 1]));
    runtime_.charge(made.entries.size());
  }
  return made;
}

Arguments Interpreter::evaluate_arguments(const Expression& e) {
  Arguments arguments;
  for (size_t i = 1; i < e.children.size(); ++i) {
    arguments.positional.push_back(evaluate(*e.children[i]));
  }
  for (const auto& [name, value] : e.named) arguments.named.emplace_back(name, evaluate(*value));
  return arguments;
}

Value Interpreter::evaluate_call(const Expression& e) {
  const Expression& callee = *e.children[0];
  if (callee.kind == ExprKind::Attribute) {
    const Value object = evaluate(*callee.children[0]);
    if (const Filter method = find_method(object, callee.name)) {
      const Arguments arguments = evaluate_arguments(e);
      runtime_.set_line(e.line);
      return method(runtime_, object, arguments);
    }
    const Value found = get_attribute(runtime_, object, callee.name);
    if (!found.is_function()) {
      runtime_.fail("{} has no method '{}'", object.type_name(), callee.name);
    }
    return found.function()(runtime_, evaluate_arguments(e));
  }
  const Value found = evaluate(callee);
  if (!found.is_function()) {
    runtime_.fail("'{}' is {} and cannot be called",
                  found.is_undefined() ? found.undefined_name() : callee.name, found.type_name());
  }
  return found.function()(runtime_, evaluate_arguments(e));
}

Value Interpreter::evaluate_filter(const Expression& e) {
  const Filter filter = find_filter(e.name);
  if (!filter) runtime_.fail("the filter '{}' is not known", e.name);
  const Value value = evaluate(*e.children[0]);
  const Arguments arguments = evaluate_arguments(e);
  runtime_.set_line(e.line);
  return filter(runtime_, value, arguments);
}

bool Interpreter::evaluate_test(const Expression& e) {
  const Test test = find_test(e.name);
  if (!test) runtime_.fail("the test '{}' is not known", e.name);
  const Value value = evaluate(*e.children[0]);
  return test(runtime_, value, evaluate_arguments(e));
}

bool Interpreter::holds(std::string_view sign, const Value& a, const Value& b) {
  if (sign == "==") return equal(a, b, runtime_);
  if (sign == "!=") return !equal(a, b, runtime_);
  if (sign == "<") return less(a, b, runtime_);
  if (sign == ">") return less(b, a, runtime_);
  if (sign == "<=") return !less(b, a, runtime_);
  if (sign == ">=") return !less(a, b, runtime_);
  return contains(runtime_, b, a) == (sign == "in");
}

bool Interpreter::compare(const Expression& e) {
  Value left = evaluate(*e.children[0]);
  for (size_t i = 0; i < e.signs.size(); ++i) {
    Value right = evaluate(*e.children[i + 1]);
    if (!holds(e.signs[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

}  // namespace

Template::Template(std::string_view source, std::string where)
    : where_(std::move(where)), block_(parse(source, where_)) {}

std::string Template::render(const Dict& variables) const {
  return Interpreter(where_, variables).run(block_);
}

}  // namespace snug::tokenizer::jinja
