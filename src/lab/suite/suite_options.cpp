// SPDX-License-Identifier: Apache-2.0
#include "lab/suite/suite_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "recipe/options/command_table.h"
#include "recipe/options/rows.h"
#include "recipe/settings.h"

namespace snug::lab {
namespace {

using recipe::YamlNode;

// What the lab gives each row itself.
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

// The text that stands behind the option: a list's items with commas.
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

// One option against the table that the command line is read by: its words, its near names.
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
