// Python's operators, subscripts and slices for template values.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/template/runtime.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer::jinja {
namespace {

constexpr size_t kMaxItems = 4'000'000;

[[noreturn]] void refuse(Runtime& runtime, std::string_view sign, const Value& a, const Value& b) {
  runtime.fail("'{}' between {} and {}", sign, a.type_name(), b.type_name());
}

Value operate_integers(Runtime& runtime, std::string_view sign, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflow = false;
  if (sign == "+") {
    overflow = __builtin_add_overflow(a, b, &out);
  } else if (sign == "-") {
    overflow = __builtin_sub_overflow(a, b, &out);
  } else if (sign == "*") {
    overflow = __builtin_mul_overflow(a, b, &out);
  } else if (sign == "//" || sign == "%") {
    if (b == 0) runtime.fail("division by zero");
    if (b == -1) {  // INT64_MIN / -1 does not fit
      overflow = sign == "//" && __builtin_sub_overflow(int64_t{0}, a, &out);
    } else {
      const int64_t remainder = a % b;
      const bool borrows = remainder != 0 && (remainder < 0) != (b < 0);  // Python rounds down
      out = sign == "//" ? a / b - borrows : remainder + (borrows ? b : 0);
    }
  } else if (b < 0) {
    return std::pow(static_cast<double>(a), static_cast<double>(b));
  } else {
    out = 1;
    for (int64_t i = 0; i < b && !overflow && (i < 64 || (a != 0 && a != 1 && a != -1)); ++i) {
      overflow = __builtin_mul_overflow(out, a, &out);
    }
    if (b > 64 && a == -1 && b % 2 != 0) out = -1;
  }
  if (overflow) runtime.fail("{} {} {} does not fit into 64 bits", a, sign, b);
  return out;
}

Value operate_numbers(Runtime& runtime, std::string_view sign, const Value& left,
                      const Value& right) {
  if (left.is_integer() && right.is_integer() && sign != "/") {
    return operate_integers(runtime, sign, left.integer(), right.integer());
  }
  const double a = left.number(), b = right.number();
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") return std::pow(a, b);
  if (b == 0) runtime.fail("division by zero");
  if (sign == "/") return a / b;
  const double quotient = std::floor(a / b);
  return sign == "//" ? quotient : a - quotient * b;
}

Value repeat(Runtime& runtime, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const size_t size = value.is_string() ? value.string().size() : value.list().size();
  const size_t limit = value.is_string() ? kMaxTextBytes : kMaxItems;
  if (size > 0 && static_cast<uint64_t>(count) > limit / size)
    runtime.fail("'*' makes too long a value");
  runtime.charge(size * static_cast<size_t>(count));
  if (size == 0) count = 0;
  if (value.is_string()) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += value.string();
    return out;
  }
  List out;
  for (int64_t i = 0; i < count; ++i) {
    out.insert(out.end(), value.list().begin(), value.list().end());
  }
  return out;
}

Value concatenate(Runtime& runtime, std::string text, std::string_view more) {
  if (text.size() + more.size() > kMaxTextBytes)
    runtime.fail("a text of more than {} MiB", kMaxTextBytes >> 20);
  text += more;
  runtime.charge(text.size());
  return text;
}

// The offset of each character, and the end.
std::vector<size_t> character_offsets(Runtime& runtime, std::string_view text) {
  runtime.charge(text.size());
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.size(); i += utf8_length(text[i])) offsets.push_back(i);
  offsets.push_back(text.size());
  return offsets;
}

Value character(const std::vector<size_t>& offsets, const std::string& text, size_t index) {
  return text.substr(offsets[index], offsets[index + 1] - offsets[index]);
}

int64_t slice_bound(Runtime& runtime, const Value& value, int64_t fallback, int64_t count,
                    bool forward) {
  if (value.is_none()) return fallback;
  if (!value.is_integer()) runtime.fail("a slice with {} as its bound", value.type_name());
  const int64_t index = value.integer();
  if (index < 0) return std::max<int64_t>(index + count, forward ? 0 : -1);
  return std::min(index, forward ? count : count - 1);
}

}  // namespace

Value operate(Runtime& runtime, std::string_view sign, const Value& a, const Value& b) {
  if (sign == "~") return concatenate(runtime, to_text(a, runtime), to_text(b, runtime));
  if (a.is_number() && b.is_number()) return operate_numbers(runtime, sign, a, b);
  if (sign == "+" && a.is_string() && b.is_string())
    return concatenate(runtime, a.string(), b.string());
  if (sign == "+" && a.is_list() && b.is_list()) {
    List joined = a.list();
    if (joined.size() + b.list().size() > kMaxItems) runtime.fail("'+' makes too long a list");
    joined.insert(joined.end(), b.list().begin(), b.list().end());
    runtime.charge(joined.size() * 16);
    return joined;
  }
  if (sign == "*" && (a.is_string() || a.is_list()) && b.is_integer()) {
    return repeat(runtime, a, b.integer());
  }
  if (sign == "*" && a.is_integer() && (b.is_string() || b.is_list())) {
    return repeat(runtime, b, a.integer());
  }
  refuse(runtime, sign, a, b);
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string() && item.is_string()) {
    runtime.charge(container.string().size());
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.is_dict()) return item.is_string() && container.dict().find(item.string());
  if (container.is_list()) {
    return std::any_of(container.list().begin(), container.list().end(),
                       [&](const Value& entry) { return equal(entry, item, runtime); });
  }
  if (container.is_undefined()) return false;
  refuse(runtime, "in", item, container);
}

List iterate(Runtime& runtime, const Value& value) {
  if (value.is_list()) {
    runtime.charge(value.list().size() * 16);
    return value.list();
  }
  List out;
  if (value.is_dict()) {
    for (const auto& entry : value.dict().entries) out.emplace_back(entry.first);
  } else if (value.is_string()) {
    const auto offsets = character_offsets(runtime, value.string());
    runtime.charge(offsets.size() * 16);
    for (size_t i = 0; i + 1 < offsets.size(); ++i)
      out.push_back(character(offsets, value.string(), i));
  } else if (!value.is_undefined()) {
    runtime.fail("{} cannot be iterated", value.type_name());
  }
  return out;
}

int64_t length_of(Runtime& runtime, const Value& value) {
  if (value.is_list()) return static_cast<int64_t>(value.list().size());
  if (value.is_dict()) return static_cast<int64_t>(value.dict().entries.size());
  if (value.is_undefined()) return 0;
  if (!value.is_string()) runtime.fail("{} has no length", value.type_name());
  return static_cast<int64_t>(character_offsets(runtime, value.string()).size()) - 1;
}

Value get_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.is_undefined()) {
    runtime.fail("'{}' is undefined, so it has no '{}'", value.undefined_name(), name);
  }
  if (find_method(value, name)) {
    return Function([value, name = std::string(name)](Runtime& inner, const Arguments& arguments) {
      return find_method(value, name)(inner, value, arguments);
    });
  }
  if (value.is_dict()) {
    if (const Value* found = value.dict().find(name)) return *found;
  }
  return Undefined{std::string(name)};
}

Value get_item(Runtime& runtime, const Value& value, const Value& key) {
  if (key.is_string() && !value.is_undefined()) {
    if (!value.is_dict()) return get_attribute(runtime, value, key.string());
    if (const Value* found = value.dict().find(key.string())) return *found;
    return Undefined{key.string()};
  }
  if (value.is_undefined()) {
    runtime.fail("'{}' is undefined, so it has no items", value.undefined_name());
  }
  if (!key.is_integer() || (!value.is_list() && !value.is_string())) {
    return Undefined{to_repr(key, runtime)};
  }
  const int64_t count = length_of(runtime, value);
  const int64_t index = key.integer() < 0 ? key.integer() + count : key.integer();
  if (index < 0 || index >= count) return Undefined{fmt::format("item {}", key.integer())};
  if (value.is_list()) return value.list()[index];
  return character(character_offsets(runtime, value.string()), value.string(), index);
}

Value get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                const Value& step_value) {
  if (!value.is_list() && !value.is_string())
    runtime.fail("{} cannot be sliced", value.type_name());
  if (!step_value.is_none() && !step_value.is_integer())
    runtime.fail("a slice steps by whole numbers");
  const int64_t step = step_value.is_none() ? 1 : step_value.integer();
  if (step == 0) runtime.fail("a slice with a step of 0");
  const bool forward = step > 0;
  const List items = iterate(runtime, value);
  const auto count = static_cast<int64_t>(items.size());
  const int64_t first = slice_bound(runtime, start, forward ? 0 : count - 1, count, forward);
  const int64_t last = slice_bound(runtime, stop, forward ? count : -1, count, forward);
  List picked;
  for (int64_t i = first; forward ? i < last : i > last;) {
    picked.push_back(items[i]);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (value.is_list()) return picked;
  std::string text;
  for (const Value& item : picked) text += item.string();
  return text;
}

// Jinja's tests: value is name(argument).

namespace {

const Value& argument(Runtime& runtime, const Arguments& arguments) {
  const Value* given = arguments.get(0, "other");
  if (!given) runtime.fail("a test lacks its argument");
  return *given;
}

int64_t whole(Runtime& runtime, const Value& value) {
  if (!value.is_integer()) runtime.fail("a test for whole numbers is given {}", value.type_name());
  return value.integer();
}

bool divisible(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const int64_t by = whole(runtime, argument(runtime, arguments));
  if (by == 0) runtime.fail("divisibleby 0");
  return by == -1 || whole(runtime, value) % by == 0;
}

bool same(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Value& other = argument(runtime, arguments);
  return value.type_name() == other.type_name() && equal(value, other, runtime);
}

bool has_case(const Value& value, bool upper) {
  if (!value.is_string()) return false;
  bool cased = false;
  for (const char c : value.string()) {
    if (c >= 'a' && c <= 'z' ? upper : c >= 'A' && c <= 'Z' && !upper) return false;
    cased |= (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  }
  return cased;
}

struct NamedTest {
  std::string_view name;
  Test function;
};
using R = Runtime&;
using V = const Value&;
using A = const Arguments&;
constexpr NamedTest kTests[] = {
    {"defined", [](R, V v, A) { return !v.is_undefined(); }},
    {"undefined", [](R, V v, A) { return v.is_undefined(); }},
    {"none", [](R, V v, A) { return v.is_none(); }},
    {"string", [](R, V v, A) { return v.is_string(); }},
    {"number", [](R, V v, A) { return v.is_number(); }},
    {"integer", [](R, V v, A) { return v.is<int64_t>(); }},
    {"float", [](R, V v, A) { return v.is<double>(); }},
    {"boolean", [](R, V v, A) { return v.is<bool>(); }},
    {"true", [](R, V v, A) { return v.is<bool>() && v.truth(); }},
    {"false", [](R, V v, A) { return v.is<bool>() && !v.truth(); }},
    {"mapping", [](R, V v, A) { return v.is_dict() && !v.dict().is_namespace; }},
    {"iterable",
     [](R, V v, A) { return v.is_list() || v.is_dict() || v.is_string() || v.is_undefined(); }},
    {"sequence",
     [](R, V v, A) { return v.is_list() || v.is_dict() || v.is_string() || v.is_undefined(); }},
    {"callable", [](R, V v, A) { return v.is_function(); }},
    {"even", [](R r, V v, A) { return whole(r, v) % 2 == 0; }},
    {"odd", [](R r, V v, A) { return whole(r, v) % 2 != 0; }},
    {"divisibleby", divisible},
    {"equalto", [](R r, V v, A a) { return equal(v, argument(r, a), r); }},
    {"eq", [](R r, V v, A a) { return equal(v, argument(r, a), r); }},
    {"ne", [](R r, V v, A a) { return !equal(v, argument(r, a), r); }},
    {"lt", [](R r, V v, A a) { return less(v, argument(r, a), r); }},
    {"gt", [](R r, V v, A a) { return less(argument(r, a), v, r); }},
    {"le", [](R r, V v, A a) { return !less(argument(r, a), v, r); }},
    {"ge", [](R r, V v, A a) { return !less(v, argument(r, a), r); }},
    {"in", [](R r, V v, A a) { return contains(r, argument(r, a), v); }},
    {"sameas", same},
    {"lower", [](R, V v, A) { return has_case(v, false); }},
    {"upper", [](R, V v, A) { return has_case(v, true); }},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const NamedTest& test : kTests) {
    if (test.name == name) return test.function;
  }
  return nullptr;
}

}  // namespace snug::tokenizer::jinja
