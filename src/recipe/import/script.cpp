// SPDX-License-Identifier: Apache-2.0
#include "recipe/import/script.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace snug::recipe {
namespace {

constexpr size_t kMaxDepth = 16, kMaxKeys = 2000;

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Reads literals of Python: dictionaries, lists, tuples, texts, numbers, True, False and None.
class Literals {
 public:
  Literals(std::string_view script, size_t at, std::string name)
      : script_(script), at_(at), name_(std::move(name)) {
    line_ = 1 + static_cast<int>(
                    std::count(script.begin(), script.begin() + static_cast<long>(at), '\n'));
  }

  YamlNode read() { return value(0); }
  size_t end() const { return at_; }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> what, Args&&... args) const {
    throw UserError("{}:{}: {}", name_, line_, fmt::format(what, std::forward<Args>(args)...));
  }

  char next() const { return at_ < script_.size() ? script_[at_] : '\0'; }

  void skip_blanks() {
    for (; at_ < script_.size(); ++at_) {
      const char c = script_[at_];
      if (c == '\n') ++line_;
      if (c == '#')
        at_ = std::min(script_.find('\n', at_), script_.size()) - 1;
      else if (std::isspace(static_cast<unsigned char>(c)) == 0 && c != '\\')
        return;
    }
  }

  YamlNode value(size_t depth) {
    skip_blanks();
    if (depth > kMaxDepth) refuse("nested more than {} deep", kMaxDepth);
    const char c = next();
    if (c == '{') return map(depth);
    if (c == '[' || c == '(') return list(depth, c == '[' ? ']' : ')');
    if (c == '"' || c == '\'') return text();
    return word();
  }

  YamlNode map(size_t depth) {
    YamlNode node{.kind = YamlNode::Kind::Map, .line = line_};
    ++at_;
    for (skip_blanks(); next() != '}'; skip_blanks()) {
      const int line = line_;
      YamlNode key = value(depth + 1);
      if (key.kind != YamlNode::Kind::Scalar) refuse("a key must be a text");
      skip_blanks();
      if (next() != ':') refuse("there is no colon behind the key {}", key.text);
      ++at_;
      if (node.entries.size() >= kMaxKeys) refuse("more than {} keys in one dictionary", kMaxKeys);
      for (const auto& [other, at] : node.entries)
        if (other == key.text)
          refuse("key {} is given twice (first in line {}); keep one", key.text, at.line);
      YamlNode own = value(depth + 1);
      own.line = line;
      end_item('}', key.text);
      node.entries.emplace_back(std::move(key.text), std::move(own));
    }
    ++at_;
    return node;
  }

  YamlNode list(size_t depth, char closing) {
    YamlNode node{.kind = YamlNode::Kind::List, .line = line_};
    ++at_;
    bool has_comma = false;
    for (skip_blanks(); next() != closing; skip_blanks()) {
      node.items.push_back(value(depth + 1));
      has_comma |= end_item(closing, node.items.back().text);
    }
    ++at_;
    // Brackets around one value are no tuple.
    if (closing == ')' && node.items.size() == 1 && !has_comma)
      return YamlNode(std::move(node.items.front()));
    return node;
  }

  // Whether there is a comma behind it.
  bool end_item(char closing, const std::string& what) {
    skip_blanks();
    const bool has_comma = next() == ',';
    if (has_comma)
      ++at_;
    else if (next() == '\0')
      refuse("the dictionary does not end");
    else if (next() != closing)
      refuse("{} is computed; write its value, since nothing of a script is executed", what);
    return has_comma;
  }

  // Texts beside each other are one.
  YamlNode text() {
    YamlNode node{.kind = YamlNode::Kind::Scalar, .line = line_, .quoted = true};
    for (; next() == '"' || next() == '\''; skip_blanks()) {
      const char quote = next();
      const size_t begin = ++at_;
      while (next() != quote) {
        if (next() == '\0' || next() == '\n') refuse("a text does not end in its line");
        if (next() == '\\') {
          ++at_;
          if (std::string_view("\\'\"").find(next()) == std::string_view::npos)
            refuse("\\{} in a text is another character; write it in another way", next());
        }
        node.text += script_[at_++];
      }
      if (at_ == begin && at_ + 1 < script_.size() && script_[at_ + 1] == quote)
        refuse("texts of several lines are not read; write it in one");
      ++at_;
    }
    return node;
  }

  YamlNode word() {
    const size_t begin = at_;
    while (is_of_name(next()) || next() == '.' || next() == '-' || next() == '+') ++at_;
    std::string text(script_.substr(begin, at_ - begin));
    YamlNode node{.kind = YamlNode::Kind::Scalar, .line = line_};
    if (text == "None") return {.kind = YamlNode::Kind::Null, .line = line_};
    const bool is_number =
        !text.empty() &&
        (std::isdigit(static_cast<unsigned char>(text.back())) != 0 || text.back() == '.') &&
        text.find_first_not_of("0123456789.eE+-_") == text.npos;
    if (text == "True" || text == "False")
      text = text == "True" ? "true" : "false";
    else if (is_number)
      std::erase(text, '_');
    else
      refuse(
          "{} is no text, number, True, False or None; write its value, since nothing of a "
          "script is executed",
          text.empty() ? std::string(1, next()) : text);
    node.text = std::move(text);
    return node;
  }

  std::string_view script_;
  size_t at_;
  std::string name_;
  int line_ = 1;
};

// Of a line "cfg = {", where its brace is; `name` is then the variable's.
std::optional<size_t> brace_in(std::string_view line, std::string& name) {
  size_t end = 0;
  while (end < line.size() && is_of_name(line[end])) ++end;
  name = line.substr(0, end);
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower != "cfg" && lower != "config") return std::nullopt;
  const size_t sign = line.find('=', end);
  if (sign == line.npos) return std::nullopt;
  // Between them nothing but a type.
  const std::string_view between = trimmed(line.substr(end, sign - end));
  const std::string_view behind = trimmed(line.substr(sign + 1));
  if ((!between.empty() && between.front() != ':') || !behind.starts_with('{')) return std::nullopt;
  return static_cast<size_t>(behind.data() - line.data());
}

// cfg["lr"] = 1, cfg["lr"] *= 2, cfg.update(lr=1), cfg |= {…}, cfg = {…}; not print(cfg["lr"]).
bool changes_variable(std::string_view line, const std::string& variable) {
  if (!line.starts_with(variable)) return false;
  line.remove_prefix(variable.size());
  if (line.empty() || is_of_name(line.front())) return false;
  for (const std::string_view call : {".update(", ".setdefault(", ".pop(", ".clear("})
    if (line.starts_with(call)) return true;
  if (line.front() == '[') {
    const size_t end = line.find(']');
    line.remove_prefix(end == line.npos ? line.size() : end + 1);
  }
  const size_t sign = line.find('=');
  if (sign == line.npos || line.substr(sign).starts_with("==")) return false;
  // Before it nothing but an operator.
  return line.substr(0, sign).find_first_not_of(" \t|+-*/%&^") == line.npos;
}

template <class Visit>
void for_each_line(std::string_view script, size_t begin, const Visit& visit) {
  while (begin < script.size()) {
    const size_t end = std::min(script.find('\n', begin), script.size());
    if (!visit(script.substr(begin, end - begin), begin)) return;
    begin = end + 1;
  }
}

std::optional<size_t> find_brace(std::string_view script, std::string& variable) {
  std::optional<size_t> found;
  for_each_line(script, 0, [&](std::string_view line, size_t begin) {
    if (const auto brace = brace_in(line, variable)) found = begin + *brace;
    return !found;
  });
  return found;
}

}  // namespace

bool has_settings(std::string_view script) {
  std::string variable;
  return find_brace(script, variable).has_value();
}

YamlNode read_script(std::string_view script, const std::string& name) {
  std::string variable;
  const std::optional<size_t> brace = find_brace(script, variable);
  if (!brace)
    throw UserError(
        "{}: no line begins with cfg = {{; of a script its dictionary of settings is read, and "
        "nothing is executed",
        name);
  Literals literals(script, *brace, name);
  YamlNode tree = literals.read();
  bool is_first = true;
  for_each_line(script, literals.end(), [&](std::string_view line, size_t begin) {
    const std::string_view rest = trimmed(line);
    const bool changes = is_first ? !rest.empty() && rest.front() != '#' && rest.front() != ';'
                                  : changes_variable(rest, variable);
    is_first = false;
    if (changes)
      throw UserError(
          "{}:{}: {} is changed behind its dictionary; write the value into it", name,
          1 + std::count(script.begin(), script.begin() + static_cast<long>(begin), '\n'),
          variable);
    return true;
  });
  return tree;
}

}  // namespace snug::recipe
