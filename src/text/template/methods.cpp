// The methods of Python's str, dict and list that templates call.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>

#include "text/template/runtime.h"
#include "text/template/text.h"
#include "text/tokenizer/unicode.h"

namespace snug::tokenizer::jinja {
namespace {

std::optional<std::string_view> text_argument(Runtime& runtime, const Arguments& arguments,
                                              size_t index, std::string_view name) {
  const Value* given = arguments.get(index, name);
  if (!given || given->is_none()) return std::nullopt;
  if (!given->is_string()) runtime.fail("a method of str is given {}", given->type_name());
  return given->string();
}

std::string_view want_text(Runtime& runtime, const Arguments& arguments, size_t index,
                           std::string_view name) {
  const auto text = text_argument(runtime, arguments, index, name);
  if (!text) runtime.fail("a method of str lacks its argument '{}'", name);
  return *text;
}

int64_t int_argument(Runtime& runtime, const Arguments& arguments, size_t index,
                     std::string_view name, int64_t fallback) {
  const Value* given = arguments.get(index, name);
  if (!given) return fallback;
  if (!given->is_integer()) runtime.fail("the argument '{}' is {}", name, given->type_name());
  return given->integer();
}

Value strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return strip_text(self.string(), text_argument(runtime, arguments, 0, "chars"), true, true);
}
Value lstrip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return strip_text(self.string(), text_argument(runtime, arguments, 0, "chars"), true, false);
}
Value rstrip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return strip_text(self.string(), text_argument(runtime, arguments, 0, "chars"), false, true);
}

// Without a separator: splits at runs of white space, without empty parts.
List split_at_space(std::string_view text, int64_t limit) {
  List parts;
  while (true) {
    const std::string rest = strip_text(text, std::nullopt, true, false);
    if (rest.empty()) return parts;
    text = text.substr(text.size() - rest.size());
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.emplace_back(strip_text(text, std::nullopt, false, true));
      return parts;
    }
    size_t end = 0;
    for (size_t next = 0; end < text.size(); end = next) {
      if (is_white_space(next_code_point(text, next))) break;
    }
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

Value split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const int64_t limit = int_argument(runtime, arguments, 1, "maxsplit", -1);
  const auto separator = text_argument(runtime, arguments, 0, "sep");
  std::string_view text = self.string();
  runtime.charge(text.size() * 4);
  if (!separator) return split_at_space(text, limit);
  if (separator->empty()) runtime.fail("split() by an empty text");
  List parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = text.find(*separator);
    if (at == std::string_view::npos) break;
    parts.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator->size());
  }
  parts.emplace_back(text);
  return parts;
}

Value rsplit(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const int64_t limit = int_argument(runtime, arguments, 1, "maxsplit", -1);
  if (limit < 0) return split(runtime, self, arguments);
  const std::string_view separator = want_text(runtime, arguments, 0, "sep");
  if (separator.empty()) runtime.fail("rsplit() by an empty text");
  std::string_view text = self.string();
  runtime.charge(text.size() * 4);
  List parts;
  while (static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.emplace_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.emplace_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value splitlines(Runtime& runtime, const Value& self, const Arguments&) {
  std::string_view text = self.string();
  runtime.charge(text.size() * 4);
  List lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    if (!text.empty()) text.remove_prefix(text.starts_with("\r\n") ? 2 : 1);
  }
  return lines;
}

// One text, or a list of which any may match.
template <class Fits>
Value fits_any(Runtime& runtime, const Arguments& arguments, Fits fits) {
  const Value* given = arguments.get(0, "prefix");
  if (given && given->is_string()) return fits(given->string());
  if (!given || !given->is_list()) runtime.fail("startswith() or endswith() is given no text");
  return std::any_of(given->list().begin(), given->list().end(),
                     [&](const Value& item) { return item.is_string() && fits(item.string()); });
}

Value startswith(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return fits_any(runtime, arguments,
                  [&](std::string_view t) { return self.string().starts_with(t); });
}
Value endswith(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return fits_any(runtime, arguments,
                  [&](std::string_view t) { return self.string().ends_with(t); });
}

Value removeprefix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto prefix = want_text(runtime, arguments, 0, "prefix");
  const bool fits = self.string().starts_with(prefix);
  return std::string_view(self.string()).substr(fits ? prefix.size() : 0);
}
Value removesuffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto suffix = want_text(runtime, arguments, 0, "suffix");
  const bool fits = self.string().ends_with(suffix);
  return std::string_view(self.string())
      .substr(0, self.string().size() - (fits ? suffix.size() : 0));
}

Value upper(Runtime&, const Value& self, const Arguments&) { return upper_text(self.string()); }
Value lower(Runtime&, const Value& self, const Arguments&) { return lower_case(self.string()); }
Value title(Runtime&, const Value& self, const Arguments&) { return title_text(self.string()); }
Value capitalize(Runtime&, const Value& self, const Arguments&) {
  return capitalize_text(self.string());
}

Value replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return replace_text(runtime, self.string(), want_text(runtime, arguments, 0, "old"),
                      want_text(runtime, arguments, 1, "new"),
                      int_argument(runtime, arguments, 2, "count", -1));
}

// Byte offset to the index of a character, -1 for none.
Value character_index(Runtime& runtime, std::string_view text, size_t offset) {
  if (offset == std::string_view::npos) return int64_t{-1};
  return length_of(runtime, text.substr(0, offset));
}
Value find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  runtime.charge(self.string().size());
  return character_index(runtime, self.string(),
                         self.string().find(want_text(runtime, arguments, 0, "sub")));
}
Value rfind(Runtime& runtime, const Value& self, const Arguments& arguments) {
  runtime.charge(self.string().size());
  return character_index(runtime, self.string(),
                         self.string().rfind(want_text(runtime, arguments, 0, "sub")));
}
Value index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Value found = find(runtime, self, arguments);
  if (found.integer() < 0) runtime.fail("index(): the text is not found");
  return found;
}

Value count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto sought = want_text(runtime, arguments, 0, "sub");
  runtime.charge(self.string().size());
  if (sought.empty()) return length_of(runtime, self) + 1;
  int64_t found = 0;
  for (size_t at = 0; (at = self.string().find(sought, at)) != std::string::npos;
       at += sought.size()) {
    ++found;
  }
  return found;
}

Value join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Value* items = arguments.get(0, "iterable");
  if (!items) runtime.fail("join() is given nothing");
  return join_texts(runtime, iterate(runtime, *items), self.string());
}

template <bool (*Is)(char32_t)>
Value all_are(Runtime&, const Value& self, const Arguments&) {
  const std::string& text = self.string();
  for (size_t i = 0; i < text.size();) {
    if (!Is(next_code_point(text, i))) return false;
  }
  return !text.empty();
}

Value dict_items(Runtime& runtime, const Value& self, const Arguments&) {
  runtime.charge(self.dict().entries.size() * 32);
  List pairs;
  for (const auto& [key, value] : self.dict().entries) pairs.emplace_back(List{key, value});
  return pairs;
}
Value dict_keys(Runtime& runtime, const Value& self, const Arguments&) {
  return iterate(runtime, self);
}
Value dict_values(Runtime& runtime, const Value& self, const Arguments&) {
  runtime.charge(self.dict().entries.size() * 16);
  List values;
  for (const auto& entry : self.dict().entries) values.push_back(entry.second);
  return values;
}
Value dict_get(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Value* key = arguments.get(0, "key");
  if (!key) runtime.fail("get() is given no key");
  if (key->is_string()) {
    if (const Value* found = self.dict().find(key->string())) return *found;
  }
  const Value* fallback = arguments.get(1, "default");
  return fallback ? *fallback : Value();
}

struct Method {
  std::string_view name;
  Filter function;
};
constexpr Method kTextMethods[] = {
    {"strip", strip},
    {"lstrip", lstrip},
    {"rstrip", rstrip},
    {"split", split},
    {"rsplit", rsplit},
    {"splitlines", splitlines},
    {"startswith", startswith},
    {"endswith", endswith},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"upper", upper},
    {"lower", lower},
    {"title", title},
    {"capitalize", capitalize},
    {"replace", replace},
    {"find", find},
    {"rfind", rfind},
    {"index", index},
    {"count", count},
    {"join", join},
    {"isdigit", all_are<is_numeric>},
    {"isspace", all_are<is_white_space>},
    {"isalpha", all_are<is_letter>},
    {"isalnum", all_are<is_letter_or_number>},
    {"isupper", all_are<is_not_lower>},
    {"islower", all_are<is_not_upper>},
};
constexpr Method kDictMethods[] = {
    {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"get", dict_get}};

template <size_t N>
Filter find_in(const Method (&methods)[N], std::string_view name) {
  for (const Method& method : methods) {
    if (method.name == name) return method.function;
  }
  return nullptr;
}

}  // namespace

Filter find_method(const Value& object, std::string_view name) {
  if (object.is_string()) return find_in(kTextMethods, name);
  if (object.is_dict() && !object.dict().is_namespace) return find_in(kDictMethods, name);
  return nullptr;
}

}  // namespace snug::tokenizer::jinja
