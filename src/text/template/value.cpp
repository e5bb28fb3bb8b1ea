// SPDX-License-Identifier: Apache-2.0
#include "text/template/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/template/runtime.h"

namespace snug::tokenizer::jinja {
namespace {

void check_depth(Runtime& runtime, int depth) {
  if (depth > kMaxDepth) runtime.fail("a value is nested more than {} deep", kMaxDepth);
  runtime.charge();
}

// The shortest digits that read back as the same number, written as Python does: 1.0, 1e+16, inf.
std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  const double size = std::abs(number);
  const bool scientific = size != 0 && (size >= 1e16 || size < 1e-4);
  char buffer[64];
  const auto form = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number, form).ptr;
  std::string text(buffer, end);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string quote_python(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\\')
      out += "\\\\";
    else if (c == quote)
      out.append("\\").append(1, c);
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else
      out += c;
  }
  return out + quote;
}

std::string quote_json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\b')
      out += "\\b";
    else if (c == '\f')
      out += "\\f";
    else if (c == '\\' || c == '"')
      out.append("\\").append(1, c);
    else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else
      out += c;
  }
  return out + '"';
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Dict::set(std::string_view key, Value value) {
  for (auto& [name, old] : entries) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  entries.emplace_back(key, std::move(value));
}

const Value* Arguments::get(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool Value::truth() const {
  if (is_none() || is_undefined()) return false;
  if (is_number()) return number() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().empty();
  if (is_dict()) return dict().is_namespace || !dict().entries.empty();
  return true;
}

std::string_view Value::type_name() const {
  if (is_none()) return "None";
  if (is_undefined()) return "undefined";
  if (is<bool>()) return "bool";
  if (is<int64_t>()) return "int";
  if (is<double>()) return "float";
  if (is_string()) return "str";
  if (is_list()) return "list";
  return is_dict() ? "dict" : "function";
}

std::string to_text(const Value& value, Runtime& runtime) {
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return "";
  return to_repr(value, runtime);
}

std::string to_repr(const Value& value, Runtime& runtime, int depth) {
  check_depth(runtime, depth);
  if (value.is_none()) return "None";
  if (value.is_undefined()) return "Undefined";
  if (value.is<bool>()) return value.integer() ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.integer());
  if (value.is<double>()) return float_text(value.number());
  if (value.is_string()) return quote_python(value.string());
  if (value.is_function()) return "<function>";
  std::string out;
  if (value.is_list()) {
    for (const auto& item : value.list()) {
      out.append(out.empty() ? "" : ", ").append(to_repr(item, runtime, depth + 1));
      runtime.charge(out.size() / 16);
    }
    return "[" + out + "]";
  }
  for (const auto& [key, item] : value.dict().entries) {
    out.append(out.empty() ? "" : ", ").append(quote_python(key)).append(": ");
    out += to_repr(item, runtime, depth + 1);
    runtime.charge(out.size() / 16);
  }
  return "{" + out + "}";
}

std::string to_json(const Value& value, Runtime& runtime, int64_t indent, int depth) {
  check_depth(runtime, depth);
  if (value.is_none()) return "null";
  if (value.is<bool>()) return value.integer() ? "true" : "false";
  if (value.is_number()) return to_repr(value, runtime);
  if (value.is_string()) return quote_json(value.string());
  if (!value.is_list() && !value.is_dict())
    runtime.fail("{} cannot be written as JSON", value.type_name());
  const std::string line =
      indent < 0 ? "" : "\n" + std::string(static_cast<size_t>(indent) * (depth + 1), ' ');
  std::string out;
  const auto begin_item = [&] {
    if (!out.empty()) out += indent < 0 ? ", " : ",";
    out += line;
    runtime.charge(out.size() / 16);
  };
  if (value.is_list()) {
    for (const auto& item : value.list()) {
      begin_item();
      out += to_json(item, runtime, indent, depth + 1);
    }
  } else {
    for (const auto& [key, item] : value.dict().entries) {
      begin_item();
      out += quote_json(key) + ": " + to_json(item, runtime, indent, depth + 1);
    }
  }
  if (!out.empty() && indent >= 0) {
    out += "\n" + std::string(static_cast<size_t>(indent) * depth, ' ');
  }
  return value.is_list() ? "[" + out + "]" : "{" + out + "}";
}

Value value_of(const nlohmann::ordered_json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  const bool fits = !json.is_number_unsigned() || json.get<uint64_t>() <= uint64_t{INT64_MAX};
  if (json.is_number_integer() && fits) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    List list;
    for (const auto& item : json) list.push_back(value_of(item));
    return list;
  }
  Dict dict;
  for (const auto& item : json.items()) dict.set(item.key(), value_of(item.value()));
  return dict;
}

bool equal(const Value& a, const Value& b, Runtime& runtime, int depth) {
  check_depth(runtime, depth);
  if (a.is_number() && b.is_number()) {
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.number() == b.number();
  }
  if (a.is_string() && b.is_string()) return a.string() == b.string();
  if (a.is_list() && b.is_list()) {
    const auto same = [&](const Value& x, const Value& y) {
      return equal(x, y, runtime, depth + 1);
    };
    return std::equal(a.list().begin(), a.list().end(), b.list().begin(), b.list().end(), same);
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.dict().entries.size() != b.dict().entries.size()) return false;
    return std::all_of(a.dict().entries.begin(), a.dict().entries.end(), [&](const auto& entry) {
      const Value* other = b.dict().find(entry.first);
      return other && equal(entry.second, *other, runtime, depth + 1);
    });
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b, Runtime& runtime, int depth) {
  check_depth(runtime, depth);
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is_string() && b.is_string()) return a.string() < b.string();
  if (a.is_list() && b.is_list()) {
    const size_t shared = std::min(a.list().size(), b.list().size());
    for (size_t i = 0; i < shared; ++i) {
      if (equal(a.list()[i], b.list()[i], runtime, depth + 1)) continue;
      return less(a.list()[i], b.list()[i], runtime, depth + 1);
    }
    return a.list().size() < b.list().size();
  }
  runtime.fail("'<' between {} and {}", a.type_name(), b.type_name());
}

}  // namespace snug::tokenizer::jinja
