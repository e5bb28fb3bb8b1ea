// Expressions: one switch over their kinds.
// SPDX-License-Identifier: Apache-2.0

#include <ctime>
#include <utility>

#include "text/template/interpreter.h"

namespace snug::tokenizer::jinja {

using ExprKind = Expression::Kind;

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

// The functions that every template may call.

namespace {

constexpr int64_t kMaxRange = 1'000'000;

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

Value make_dict(Runtime&, const Arguments& arguments) {
  Dict made;
  for (const auto& [key, value] : arguments.named) made.set(key, value);
  return made;
}

}  // namespace

std::vector<std::pair<std::string, Function>> global_functions() {
  return {{"range", make_range},
          {"raise_exception", raise_exception},
          {"strftime_now", strftime_now},
          {"dict", make_dict}};
}

}  // namespace snug::tokenizer::jinja
