// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "recipe/faults.h"
#include "recipe/numbers.h"
#include "recipe/options/command_table.h"
#include "recipe/options/rows.h"
#include "recipe/settings.h"

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

namespace {

using recipe::YamlNode;

// Options that the lab sets for each row.
constexpr std::string_view kLabsOwn[] = {"out_dir", "resume", "hosts", "hostfile"};

// Every name of every option, with its key and whether it chooses a class.
struct Names {
  std::map<std::string, std::string, std::less<>> keys;
  std::set<std::string, std::less<>> classes;
};

const Names& names() {
  static const Names kNames = [] {
    Names names;
    recipe::Recipe recipe;
    for (const recipe::Row& row : recipe::recipe_rows(recipe)) {
      names.keys.emplace(row.key, row.key);
      for (const std::string& alias : row.aliases) names.keys.emplace(alias, row.key);
      if (row.selected) names.classes.insert(row.key);
    }
    return names;
  }();
  return kNames;
}

struct Leaf {
  std::string key;
  const YamlNode* node;
};

void collect_leaves(const YamlNode& node, const std::string& key, std::vector<Leaf>& out) {
  if (node.kind != YamlNode::Kind::Map) {
    out.push_back({recipe::canonical_key(key), &node});
    return;
  }
  for (const auto& [word, child] : node.entries)
    collect_leaves(child, key.empty() ? word : fmt::format("{}.{}", key, word), out);
}

// The option's value as text: the items of a list with commas.
std::optional<std::string> value_text(const Leaf& leaf, Faults& faults) {
  if (leaf.node->kind != YamlNode::Kind::List) return text_of(*leaf.node, leaf.key, faults);
  std::vector<std::string> items;
  for (const YamlNode& item : leaf.node->items) {
    const auto text = text_of(item, leaf.key, faults);
    if (!text) return std::nullopt;
    items.push_back(*text);
  }
  return fmt::format("{}", fmt::join(items, ","));
}

recipe::Value value_of(const YamlNode& node) {
  recipe::Value value{.kind = recipe::Value::Kind::Text, .text = node.text, .quoted = node.quoted};
  if (node.kind == YamlNode::Kind::Null) value.kind = recipe::Value::Kind::Null;
  if (node.kind == YamlNode::Kind::List) {
    value.kind = recipe::Value::Kind::List;
    for (const YamlNode& item : node.items) value.items.push_back(item.text);
  }
  return value;
}

// Checks one option with the parser of the command line, whose messages it uses.
void check_option(const Leaf& leaf, Faults& faults) {
  for (const std::string_view key : kLabsOwn)
    if (leaf.key == key)
      return faults.add(
          leaf.node->line,
          fmt::format("{}: cannot be set in a suite; the lab sets it for each row", leaf.key));
  recipe::Recipe recipe, defaults;
  const recipe::OptionTable table{.rows = recipe::recipe_rows(recipe),
                                  .defaults = recipe::recipe_rows(defaults),
                                  .foreign = {},
                                  .foreign_home = {}};
  recipe::Outcome outcome;
  recipe::apply_settings({{leaf.key, value_of(*leaf.node), leaf.key}}, table, false, outcome);
  for (std::string& fault : outcome.faults) faults.add(leaf.node->line, std::move(fault));
}

void put(Settings& options, const OptionChange& change) {
  const std::string key = option_key(change.key);
  const auto found = std::find_if(options.begin(), options.end(), [&](const auto& option) {
    return option_key(option.first) == key;
  });
  if (!change.value) {
    if (found != options.end()) options.erase(found);
  } else if (found == options.end()) {
    options.emplace_back(change.key, *change.value);
  } else {
    *found = {change.key, *change.value};
  }
}

// A class chosen anew: arguments that were meant for another one go.
void take_out_group(Settings& options, const std::string& class_key) {
  const std::string group = class_key.substr(0, class_key.find('.') + 1);
  std::erase_if(options,
                [&](const auto& option) { return option_key(option.first).starts_with(group); });
}

}  // namespace

std::string option_key(std::string_view name) {
  const std::string key = recipe::canonical_key(name);
  const auto found = names().keys.find(key);
  return found == names().keys.end() ? key : found->second;
}

const std::string* find_option(const Settings& options, std::string_view name) {
  const std::string key = option_key(name);
  for (const auto& [other, value] : options)
    if (option_key(other) == key) return &value;
  return nullptr;
}

OptionLayer read_options(const YamlNode& node, const std::filesystem::path& folder,
                         TakingBack taking_back, Faults& faults) {
  OptionLayer layer;
  if (node.kind == YamlNode::Kind::Null) return layer;
  if (node.kind != YamlNode::Kind::Map) {
    faults.add(node.line, "set: must be a mapping of options, as in {train.micro_batch_size: 8}");
    return layer;
  }
  std::vector<Leaf> leaves;
  collect_leaves(node, "", leaves);
  std::map<std::string, std::string> seen;
  for (const Leaf& leaf : leaves) {
    const auto [first, fresh] = seen.emplace(option_key(leaf.key), leaf.key);
    if (!fresh)
      faults.add(leaf.node->line,
                 fmt::format("{}: the same option as {}; keep one", leaf.key, first->second));
    const bool is_config = leaf.key == kConfig;
    if (!is_config) check_option(leaf, faults);
    if (leaf.node->kind == YamlNode::Kind::Null) {
      if (taking_back == TakingBack::Refused)
        faults.add(leaf.node->line, fmt::format("{}: null removes an option only in the set of a "
                                                "row; here give a value, or none for no value",
                                                leaf.key));
      layer.push_back({leaf.key, std::nullopt});
      continue;
    }
    auto text = value_text(leaf, faults);
    if (text && is_config) text = (folder / *text).lexically_normal().string();
    if (text) layer.push_back({leaf.key, std::move(text)});
  }
  return layer;
}

void lay_over(Settings& options, const OptionLayer& layer) {
  for (const OptionChange& change : layer)
    if (const std::string key = option_key(change.key); names().classes.contains(key))
      take_out_group(options, key);
  for (const OptionChange& change : layer) put(options, change);
}

void lay_over(Settings& options, const Settings& layer) {
  OptionLayer changes;
  for (const auto& [key, value] : layer) changes.push_back({key, value});
  lay_over(options, changes);
}

}  // namespace snug::lab
