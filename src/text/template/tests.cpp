// Jinja's tests: value is name(argument).
// SPDX-License-Identifier: Apache-2.0
#include "text/template/runtime.h"

namespace snug::tokenizer::jinja {
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
