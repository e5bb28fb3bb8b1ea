// Jinja's filters: of lists, then of texts and numbers.
// SPDX-License-Identifier: Apache-2.0
#include "text/template/runtime.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "text/template/text.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer::jinja {
namespace {

Value length(Runtime& runtime, const Value& value, const Arguments&) {
  return length_of(runtime, value);
}
Value to_list(Runtime& runtime, const Value& value, const Arguments&) {
  return iterate(runtime, value);
}

Value first(Runtime& runtime, const Value& value, const Arguments&) {
  const List items = iterate(runtime, value);
  return items.empty() ? Value(Undefined{"first of nothing"}) : items.front();
}
Value last(Runtime& runtime, const Value& value, const Arguments&) {
  const List items = iterate(runtime, value);
  return items.empty() ? Value(Undefined{"last of nothing"}) : items.back();
}

Value attribute_of(Runtime& runtime, const Value& item, const Value& path) {
  if (!path.is_string()) return get_item(runtime, item, path);
  Value found = item;
  std::string_view rest = path.string();
  while (!rest.empty()) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    found = get_item(runtime, found, rest.substr(0, dot));
    rest.remove_prefix(std::min(dot + 1, rest.size()));
  }
  return found;
}

Value join(Runtime& runtime, const Value& value, const Arguments& arguments) {
  List items = iterate(runtime, value);
  if (const Value* path = arguments.get(1, "attribute")) {
    for (Value& item : items) item = attribute_of(runtime, item, *path);
  }
  const Value* separator = arguments.get(0, "d");
  return join_texts(runtime, items, separator ? to_text(*separator, runtime) : "");
}

Value reverse(Runtime& runtime, const Value& value, const Arguments&) {
  List items = iterate(runtime, value);
  std::reverse(items.begin(), items.end());
  if (!value.is_string()) return items;
  return join_texts(runtime, items, "");
}

Value sort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  List items = iterate(runtime, value);
  const Value* path = arguments.get(2, "attribute");
  const Value* descending = arguments.get(0, "reverse");
  const Value* exact = arguments.get(1, "case_sensitive");
  const auto key = [&](const Value& item) {
    Value found = path ? attribute_of(runtime, item, *path) : item;
    const bool folds = found.is_string() && !(exact && exact->truth());
    return folds ? Value(lower_case(found.string())) : found;
  };
  const bool down = descending && descending->truth();
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    return down ? less(key(b), key(a), runtime) : less(key(a), key(b), runtime);
  });
  return items;
}

Value unique(Runtime& runtime, const Value& value, const Arguments&) {
  List kept;
  for (const Value& item : iterate(runtime, value)) {
    if (!contains(runtime, kept, item)) kept.push_back(item);
  }
  return kept;
}

Value items(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (value.is_undefined()) return List{};
  if (!value.is_dict()) runtime.fail("items of {}", value.type_name());
  Dict plain;
  plain.entries = value.dict().entries;
  const Value copy(std::move(plain));
  return find_method(copy, "items")(runtime, copy, arguments);
}

Value dictsort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Value pairs = items(runtime, value, {});
  return sort(runtime, pairs, arguments);
}

Value sum(Runtime& runtime, const Value& value, const Arguments&) {
  Value total = int64_t{0};
  for (const Value& item : iterate(runtime, value)) total = operate(runtime, "+", total, item);
  return total;
}

Value extreme(Runtime& runtime, const Value& value, bool largest) {
  const List all = iterate(runtime, value);
  if (all.empty()) return Undefined{"min or max of nothing"};
  const auto below = [&](const Value& a, const Value& b) { return less(a, b, runtime); };
  return largest ? *std::max_element(all.begin(), all.end(), below)
                 : *std::min_element(all.begin(), all.end(), below);
}
Value minimum(Runtime& runtime, const Value& value, const Arguments&) {
  return extreme(runtime, value, false);
}
Value maximum(Runtime& runtime, const Value& value, const Arguments&) {
  return extreme(runtime, value, true);
}

// The arguments after the first `count`, for the filter or test that the first ones name.
Arguments rest_of(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  const size_t dropped = std::min(count, rest.positional.size());
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(dropped));
  return rest;
}

Value map(Runtime& runtime, const Value& value, const Arguments& arguments) {
  List all = iterate(runtime, value);
  if (arguments.positional.empty()) {
    const Value *path = arguments.get(0, "attribute"), *fallback = arguments.get(1, "default");
    if (!path) runtime.fail("map needs a filter or attribute=");
    for (Value& item : all) {
      item = attribute_of(runtime, item, *path);
      if (item.is_undefined() && fallback) item = *fallback;
    }
    return all;
  }
  const Filter filter = find_filter(to_text(arguments.positional[0], runtime));
  if (!filter)
    runtime.fail("map: the filter '{}' is not known", to_text(arguments.positional[0], runtime));
  const Arguments rest = rest_of(arguments, 1);
  for (Value& item : all) item = filter(runtime, item, rest);
  return all;
}

// select, reject (by_attribute false), selectattr, rejectattr (true).
Value choose(Runtime& runtime, const Value& value, const Arguments& arguments, bool by_attribute,
             bool keep) {
  const size_t skip = by_attribute ? 1 : 0;
  const Value* path = by_attribute ? arguments.get(0, "attribute") : nullptr;
  if (by_attribute && !path) runtime.fail("selectattr and rejectattr need an attribute");
  Test test = nullptr;
  if (arguments.positional.size() > skip) {
    const std::string name = to_text(arguments.positional[skip], runtime);
    test = find_test(name);
    if (!test) runtime.fail("the test '{}' is not known", name);
  }
  const Arguments rest = rest_of(arguments, skip + 1);
  List kept;
  for (const Value& item : iterate(runtime, value)) {
    const Value subject = path ? attribute_of(runtime, item, *path) : item;
    if ((test ? test(runtime, subject, rest) : subject.truth()) == keep) kept.push_back(item);
  }
  return kept;
}
Value select(Runtime& r, const Value& v, const Arguments& a) {
  return choose(r, v, a, false, true);
}
Value reject(Runtime& r, const Value& v, const Arguments& a) {
  return choose(r, v, a, false, false);
}
Value selectattr(Runtime& r, const Value& v, const Arguments& a) {
  return choose(r, v, a, true, true);
}
Value rejectattr(Runtime& r, const Value& v, const Arguments& a) {
  return choose(r, v, a, true, false);
}

Value fallback(Runtime&, const Value& value, const Arguments& arguments) {
  const Value *other = arguments.get(0, "default_value"), *also_false = arguments.get(1, "boolean");
  const bool replaced =
      value.is_undefined() || (also_false && also_false->truth() && !value.truth());
  if (!replaced) return value;
  return other ? *other : Value("");
}

Value trim(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Value* given = arguments.get(0, "chars");
  std::optional<std::string_view> characters;
  if (given && given->is_string()) characters = given->string();
  return strip_text(to_text(value, runtime), characters, true, true);
}
Value upper(Runtime& runtime, const Value& value, const Arguments&) {
  return upper_text(to_text(value, runtime));
}
Value lower(Runtime& runtime, const Value& value, const Arguments&) {
  return lower_case(to_text(value, runtime));
}
Value title(Runtime& runtime, const Value& value, const Arguments&) {
  return title_text(to_text(value, runtime));
}
Value capitalize(Runtime& runtime, const Value& value, const Arguments&) {
  return capitalize_text(to_text(value, runtime));
}
Value text(Runtime& runtime, const Value& value, const Arguments&) {
  return to_text(value, runtime);
}

Value replace(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Value *what = arguments.get(0, "old"), *by = arguments.get(1, "new");
  if (!what || !by || !what->is_string() || !by->is_string())
    runtime.fail("replace takes two texts");
  const Value* count = arguments.get(2, "count");
  return replace_text(runtime, to_text(value, runtime), what->string(), by->string(),
                      count && count->is_integer() ? count->integer() : -1);
}

Value escape(Runtime& runtime, const Value& value, const Arguments&) {
  std::string out;
  for (const char c : to_text(value, runtime)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&#34;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

Value indent(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Value *width = arguments.get(0, "width"), *first = arguments.get(1, "first");
  const int64_t blanks = width && width->is_integer() ? width->integer() : 4;
  if (blanks < 0 || blanks > 1000) runtime.fail("indent by {}", blanks);
  const std::string pad(static_cast<size_t>(blanks), ' ');
  std::string out = first && first->truth() ? pad : "";
  const std::string source = to_text(value, runtime);
  for (size_t i = 0; i < source.size(); ++i) {
    out += source[i];
    runtime.charge();
    // Blank lines stay blank.
    if (source[i] == '\n' && i + 1 < source.size() && source[i + 1] != '\n') out += pad;
  }
  return out;
}

Value tojson(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Value* width = arguments.get(1, "indent");
  if (!width) width = arguments.get(0, "indent");
  const int64_t blanks = width && width->is_integer() ? width->integer() : -1;
  if (blanks > 100) runtime.fail("tojson with an indent of {}", blanks);
  return to_json(value, runtime, blanks);
}

double parse_number(std::string_view digits, double fallback) {
  double number = 0;
  const std::string stripped = strip_text(digits, std::nullopt, true, true);
  const char* begin = stripped.data() + stripped.starts_with('+');
  const auto [end, error] = std::from_chars(begin, stripped.data() + stripped.size(), number);
  return error == std::errc{} && end == stripped.data() + stripped.size() ? number : fallback;
}

Value to_int(Runtime&, const Value& value, const Arguments& arguments) {
  const Value* given = arguments.get(0, "default");
  const int64_t fallback = given && given->is_integer() ? given->integer() : 0;
  if (value.is_integer()) return value.integer();
  double number = value.is<double>() ? value.number() : NAN;
  if (value.is_string()) number = parse_number(value.string(), NAN);
  if (!(std::abs(number) < 9.2e18)) return fallback;
  return static_cast<int64_t>(number);
}

Value to_float(Runtime&, const Value& value, const Arguments& arguments) {
  const Value* given = arguments.get(0, "default");
  const double fallback = given && given->is_number() ? given->number() : 0.0;
  if (value.is_number()) return value.number();
  return value.is_string() ? parse_number(value.string(), fallback) : fallback;
}

Value absolute(Runtime& runtime, const Value& value, const Arguments&) {
  if (value.is<double>()) return std::abs(value.number());
  if (!value.is_integer()) runtime.fail("abs of {}", value.type_name());
  return value.integer() < 0 ? operate(runtime, "-", int64_t{0}, value) : value;
}

Value round_number(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!value.is_number()) runtime.fail("round of {}", value.type_name());
  const Value* given = arguments.get(0, "precision");
  const double scale =
      std::pow(10.0, given && given->is_integer() ? double(given->integer()) : 0.0);
  return std::nearbyint(value.number() * scale) / scale;
}

struct NamedFilter {
  std::string_view name;
  Filter function;
};

constexpr NamedFilter kFilters[] = {
    {"length", length},
    {"count", length},
    {"list", to_list},
    {"first", first},
    {"last", last},
    {"join", join},
    {"reverse", reverse},
    {"sort", sort},
    {"unique", unique},
    {"items", items},
    {"dictsort", dictsort},
    {"sum", sum},
    {"min", minimum},
    {"max", maximum},
    {"map", map},
    {"select", select},
    {"reject", reject},
    {"selectattr", selectattr},
    {"rejectattr", rejectattr},
    {"default", fallback},
    {"d", fallback},
    {"trim", trim},
    {"upper", upper},
    {"lower", lower},
    {"title", title},
    {"capitalize", capitalize},
    {"string", text},
    {"safe", text},
    {"replace", replace},
    {"escape", escape},
    {"e", escape},
    {"indent", indent},
    {"tojson", tojson},
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"round", round_number},
};

}  // namespace

Filter find_filter(std::string_view name) {
  for (const NamedFilter& filter : kFilters)
    if (filter.name == name) return filter.function;
  return nullptr;
}

}  // namespace snug::tokenizer::jinja
