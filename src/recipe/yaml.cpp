// SPDX-License-Identifier: Apache-2.0
#include "recipe/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

namespace snug::recipe {
namespace {

constexpr size_t kMaxDepth = 16, kMaxKeys = 2000;

// Builds the tree from yaml-cpp's events. Its own Node keeps neither duplicates nor lines apart and
// shares what an alias repeats, which is how small files grow into gigabytes.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string name) : name_(std::move(name)) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(mark, anchor, {.kind = YamlNode::Kind::Null});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_anchor(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    add(mark, anchor, {.kind = YamlNode::Kind::Scalar, .quoted = tag == "!", .text = value});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(mark, anchor, YamlNode::Kind::List);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(mark, anchor, YamlNode::Kind::Map);
  }
  void OnMapEnd() override { close(); }

 private:
  // A node under construction; `key` is the key of a mapping whose value comes next.
  struct Open {
    YamlNode node;
    std::string key = {};
    int key_line = 0;
    bool has_key = false;
  };

  [[noreturn]] void refuse_anchor(const YAML::Mark& mark) const {
    throw UserError("{}:{}: anchors and aliases (& and *) are not supported; write the value out",
                    name_, mark.line + 1);
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    throw UserError("{}:{}: the tag {} is not supported; leave it out", name_, mark.line + 1, tag);
  }

  void open(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode::Kind kind) {
    if (anchor != 0) refuse_anchor(mark);
    if (stack_.size() >= kMaxDepth)
      throw UserError("{}:{}: nested more than {} deep", name_, mark.line + 1, kMaxDepth);
    if (!stack_.empty() && stack_.back().node.kind == YamlNode::Kind::Map && !stack_.back().has_key)
      throw UserError("{}:{}: found a list or mapping instead of a key", name_, mark.line + 1);
    stack_.push_back({.node = {.kind = kind, .line = mark.line + 1}});
  }

  void close() {
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    attach(std::move(node));
  }

  void add(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode node) {
    if (anchor != 0) refuse_anchor(mark);
    node.line = mark.line + 1;
    attach(std::move(node));
  }

  void attach(YamlNode node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = stack_.back();
    if (parent.node.kind == YamlNode::Kind::List) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      take_key(parent, node);
    } else {
      // yaml-cpp puts an empty value at the next token; the key's line is what a person looks for.
      node.line = parent.key_line;
      parent.node.entries.emplace_back(std::move(parent.key), std::move(node));
      parent.has_key = false;
    }
  }

  void take_key(Open& parent, const YamlNode& node) {
    if (node.kind != YamlNode::Kind::Scalar || node.text.empty())
      throw UserError("{}:{}: a key is missing before the colon", name_, node.line);
    if (parent.node.entries.size() >= kMaxKeys)
      throw UserError("{}:{}: more than {} keys in one mapping; this is not a recipe", name_,
                      node.line, kMaxKeys);
    for (const auto& [key, value] : parent.node.entries)
      if (key == node.text)
        throw UserError("{}:{}: key {} is given twice (first in line {}); keep one", name_,
                        node.line, key, value.line);
    parent.key = node.text;
    parent.key_line = node.line;
    parent.has_key = true;
  }

  std::string name_;
  std::vector<Open> stack_;
  YamlNode root_;
};

int line_of(std::string_view text, size_t offset) {
  return 1 +
         static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(offset), '\n'));
}

// What yaml-cpp would misread or explain badly: bytes that are no text, and tabs as indentation.
void check_characters(std::string_view text, const std::string& name) {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos)
    throw UserError("{}:{}: byte {} is not UTF-8; save the file as UTF-8", name,
                    line_of(text, invalid), invalid);
  if (text.find('\r') != text.npos && text.find('\n') == text.npos)
    throw UserError("{}: its lines end with carriage returns alone; save it with line feeds", name);
  bool indentation = true;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\t' && indentation)
      throw UserError("{}:{}: this line is indented with a tab; YAML allows only spaces", name,
                      line_of(text, i));
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t')
      throw UserError("{}:{}: control character 0x{:02x}; this is not a text file", name,
                      line_of(text, i), static_cast<unsigned>(c));
    indentation = c == '\n' || (indentation && c == ' ');
  }
}

// What is wrong with one line of a mapping, in the words of people who write it; empty: nothing.
std::string slip_in(const std::string& line) {
  const size_t begin = line.find_first_not_of(" -");
  const size_t end = std::min(line.find_first_of(" \t\r:=", begin), line.size());
  const std::string key = line.substr(begin, std::min<size_t>(end - begin, 40));
  const size_t next = std::min(line.find_first_not_of(" \t\r", end), line.size());
  if (next == line.size()) return fmt::format("write a colon behind {}", key);
  if (line[next] == '=') return fmt::format("write {}: in place of {} =", key, key);
  if (line[next] != ':') return fmt::format("write a colon behind {}", key);
  const bool is_spaced =
      next + 1 == line.size() || std::isspace(static_cast<unsigned char>(line[next + 1])) != 0;
  return is_spaced ? "" : fmt::format("write a space behind {}:", key);
}

// yaml-cpp notices most slips at the line that follows: «; line 45 is "a:2": write a space behind
// a:».
std::string likely_slip(std::string_view text, int line) {
  std::vector<std::string> lines;
  std::istringstream stream{std::string(text)};
  for (std::string own; std::getline(stream, own);) lines.push_back(std::move(own));
  for (int i = std::min<int>(line, static_cast<int>(lines.size())); i > 0; --i) {
    const std::string& own = lines[static_cast<size_t>(i) - 1];
    const size_t begin = own.find_first_not_of(" -\r");
    if (begin == own.npos || own[begin] == '#') continue;
    if (const std::string slip = slip_in(own); !slip.empty())
      return fmt::format("; line {} is \"{}\": {}", i, trimmed(own).substr(0, 60), slip);
    if (i < line) break;
  }
  return "; the lines of one mapping begin at the same column, and those in it further right";
}

}  // namespace

YamlNode read_yaml(std::string_view text, const std::string& name) {
  check_characters(text, name);
  TreeBuilder builder(name);
  // yaml-cpp lets an open quote run to the end and swallow every key on the way; an end of document
  // inside a quote it does refuse.
  std::istringstream stream(fmt::format("{}\n...\n", text));
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    TreeBuilder rest(name);
    if (parser.HandleNextDocument(rest))
      throw UserError("{}:{}: a second document begins here; a recipe is one mapping of keys", name,
                      std::max(1, rest.take().line));
  } catch (const YAML::Exception& error) {
    if (error.msg == YAML::ErrorMsg::DOC_IN_SCALAR)
      throw UserError("{}: not valid YAML: a quote is never closed", name);
    throw UserError("{}:{}: not valid YAML: {}{}", name, error.mark.line + 1, error.msg,
                    likely_slip(text, error.mark.line + 1));
  }
  return builder.take();
}

namespace {

nlohmann::ordered_json as_json(const YamlNode& node) {
  nlohmann::ordered_json json;
  switch (node.kind) {
    case YamlNode::Kind::Null:
      break;
    case YamlNode::Kind::Scalar:
      // As it was typed, where JSON has such a word.
      if (!node.quoted) json = nlohmann::ordered_json::parse(node.text, nullptr, false);
      if (node.quoted || json.is_discarded() || json.is_structured()) json = node.text;
      break;
    case YamlNode::Kind::List:
      json = nlohmann::ordered_json::array();
      for (const YamlNode& item : node.items) json.push_back(as_json(item));
      break;
    case YamlNode::Kind::Map:
      json = nlohmann::ordered_json::object();
      for (const auto& [key, value] : node.entries) json[key] = as_json(value);
      break;
  }
  return json;
}

}  // namespace

std::string one_line(const YamlNode& node) {
  return as_json(node).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace snug::recipe
