// Jinja's filters of texts and numbers.
// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "text/template/filters.h"
#include "text/template/text.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer::jinja {
namespace {

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

constexpr NamedFilter kFilters[] = {
    {"trim", trim},          {"upper", upper},           {"lower", lower},
    {"title", title},        {"capitalize", capitalize}, {"string", text},
    {"safe", text},          {"replace", replace},       {"escape", escape},
    {"e", escape},           {"indent", indent},         {"tojson", tojson},
    {"int", to_int},         {"float", to_float},        {"abs", absolute},
    {"round", round_number},
};

}  // namespace

std::span<const NamedFilter> text_filters() { return kFilters; }

}  // namespace snug::tokenizer::jinja
