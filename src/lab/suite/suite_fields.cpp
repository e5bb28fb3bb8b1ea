// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "recipe/faults.h"
#include "recipe/numbers.h"

namespace snug::lab {
namespace {

using recipe::YamlNode;

const char* kind_name(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::Null:
      return "nothing";
    case YamlNode::Kind::Scalar:
      return "one value";
    case YamlNode::Kind::List:
      return "a list";
    case YamlNode::Kind::Map:
      return "a mapping";
  }
  return "";
}

// A file of nothing but mistakes is shown by its first ones.
constexpr size_t kMostShown = 40;

}  // namespace

Fields::Fields(const YamlNode& node, std::string what, Faults& faults)
    : node_(node), what_(std::move(what)), faults_(faults) {
  if (node.kind != YamlNode::Kind::Map && node.kind != YamlNode::Kind::Null)
    faults_.add(node.line,
                fmt::format("{} holds {}; give a mapping of keys", what_, kind_name(node)));
}

const YamlNode* Fields::take(std::string_view key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.emplace_back(key);
  for (const auto& [name, value] : node_.entries)
    if (name == key) return &value;
  return nullptr;
}

const YamlNode* Fields::take_said(std::string_view key) {
  const YamlNode* node = take(key);
  return node != nullptr && node->kind != YamlNode::Kind::Null ? node : nullptr;
}

void Fields::read(std::string_view key, std::string& out) {
  const YamlNode* node = take(key);
  if (node == nullptr) return;
  if (node->kind == YamlNode::Kind::Null)
    out.clear();
  else if (const auto text = text_of(*node, key, faults_))
    out = *text;
}

void Fields::read(std::string_view key, std::optional<double>& out) {
  const YamlNode* node = take(key);
  if (node == nullptr) return;
  out = node->kind == YamlNode::Kind::Null ? std::nullopt : number_of(*node, key, faults_);
}

void Fields::read_size(std::string_view key, std::string& out) {
  const YamlNode* node = take(key);
  if (node == nullptr) return;
  if (node->kind == YamlNode::Kind::Null)
    out.clear();
  else if (bytes_of(*node, key, faults_))
    out = node->text;
}

void Fields::read_seconds(std::string_view key, double& out) {
  std::optional<double> seconds;
  read(key, seconds);
  if (seconds && *seconds < 0)
    add(key, fmt::format("{}: {} seconds; give 0 or more", key, *seconds));
  else if (seconds)
    out = *seconds;
}

void Fields::read_list(std::string_view key, std::vector<std::string>& out) {
  const YamlNode* node = take(key);
  if (node == nullptr) return;
  out.clear();
  if (node->kind == YamlNode::Kind::List) {
    for (const YamlNode& item : node->items)
      if (const auto text = text_of(item, key, faults_)) out.push_back(*text);
  } else if (node->kind != YamlNode::Kind::Null) {
    if (const auto text = text_of(*node, key, faults_)) out.push_back(*text);
  }
}

void Fields::add(std::string_view key, const std::string& text) {
  for (const auto& [name, value] : node_.entries)
    if (name == key) return faults_.add(value.line, text);
  faults_.add(node_.line, text);
}

void Fields::finish() {
  for (const auto& [key, value] : node_.entries) {
    if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
    const std::string near = nearest_name(key, asked_);
    const std::string help = near.empty() ? fmt::format("its keys are {}", fmt::join(asked_, ", "))
                                          : fmt::format("did you mean {}?", near);
    faults_.add(value.line, fmt::format("{} has no key {}; {}", what_, key, help));
  }
}

std::optional<std::string> text_of(const YamlNode& node, std::string_view what, Faults& faults) {
  if (node.kind == YamlNode::Kind::Scalar) return node.text;
  faults.add(node.line, fmt::format("{} holds {}; give one value", what, kind_name(node)));
  return std::nullopt;
}

std::optional<double> number_of(const YamlNode& node, std::string_view what, Faults& faults) {
  const auto text = text_of(node, what, faults);
  if (!text) return std::nullopt;
  const auto number = recipe::parse_float(*text);
  if (!number)
    faults.add(node.line, fmt::format("{}: \"{}\" is not a number", what, text->substr(0, 80)));
  return number;
}

std::optional<double> bytes_of(const YamlNode& node, std::string_view what, Faults& faults) {
  const auto text = text_of(node, what, faults);
  if (!text) return std::nullopt;
  try {
    return static_cast<double>(parse_bytes(*text, what));
  } catch (const UserError&) {
    faults.add(node.line, fmt::format("{}: \"{}\" is not a size; write it as 61.97GiB, 14GB or a "
                                      "number of bytes",
                                      what, text->substr(0, 80)));
    return std::nullopt;
  }
}

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > 100) return false;
  if (!std::isalnum(static_cast<unsigned char>(text[0]))) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
  });
}

void Faults::add(int line, std::string text) {
  std::pair<int, std::string> fault(line, std::move(text));
  if (std::find(faults_.begin(), faults_.end(), fault) == faults_.end())
    faults_.push_back(std::move(fault));
}

void Faults::throw_all() const {
  std::vector<std::pair<int, std::string>> sorted = faults_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> texts;
  for (const auto& [line, text] : sorted) {
    if (texts.size() == kMostShown) {
      texts.push_back(fmt::format("and {} more", sorted.size() - kMostShown));
      break;
    }
    texts.push_back(fmt::format("{}:{}: {}", file_, line, text));
  }
  recipe::throw_faults(texts, "");
}

}  // namespace snug::lab
