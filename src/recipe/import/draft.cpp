// SPDX-License-Identifier: Apache-2.0
#include "recipe/import/draft.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/text.h"
#include "recipe/numbers.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"

namespace snug::recipe {
namespace {

using Way = KeyRow::Way;

bool is_off_word(std::string_view text) {
  const std::optional<bool> flag = parse_bool(text);
  const std::optional<double> number = parse_float(text);
  return text.empty() || is_null_word(text) || text == "none" || flag == false || number == 0;
}

// accelerate writes fsdp_config.fsdp_offload_params, transformers fsdp_config.offload_params.
std::string plain_key(std::string key) {
  static constexpr std::string_view kTwice = "fsdp_config.fsdp_";
  if (key.starts_with(kTwice)) key.erase(kTwice.find('.') + 1, std::string_view("fsdp_").size());
  return key;
}

std::vector<std::string> their_words(std::string_view pairs) {
  std::vector<std::string> words;
  for (const std::string_view pair : words_of(pairs))
    words.emplace_back(pair.substr(0, pair.find('=')));
  return words;
}

Value value_of(const YamlNode& node) {
  Value value{.kind = node.kind == YamlNode::Kind::List ? Value::Kind::List : Value::Kind::Text,
              .text = node.text,
              .quoted = node.quoted};
  for (const YamlNode& item : node.items) value.items.push_back(item.text);
  return value;
}

bool is_plain(const YamlNode& node) {
  return node.kind == YamlNode::Kind::Scalar ||
         (node.kind == YamlNode::Kind::List &&
          std::ranges::all_of(node.items, [](const YamlNode& item) {
            return item.kind == YamlNode::Kind::Scalar;
          }));
}

}  // namespace

bool is_on(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::Null:
      return false;
    case YamlNode::Kind::Scalar:
      return !is_off_word(node.text);
    case YamlNode::Kind::List:
      return !node.items.empty();
    case YamlNode::Kind::Map: {
      const YamlNode* enabled = find_in(node, "enabled");
      return enabled != nullptr ? is_on(*enabled) : !node.entries.empty();
    }
  }
  return false;
}

const YamlNode* find_in(const YamlNode& map, std::string_view key) {
  for (const auto& [word, child] : map.entries)
    if (word == key) return &child;
  return nullptr;
}

const YamlNode* find_at(const YamlNode& tree, std::string_view path) {
  const YamlNode* node = &tree;
  while (node != nullptr && !path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    node = find_in(*node, path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return node;
}

std::string text_in(const YamlNode& map, std::string_view key) {
  const YamlNode* node = find_in(map, key);
  return node != nullptr && node->kind == YamlNode::Kind::Scalar ? node->text : "";
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = text.find_first_not_of(' '); at < text.size();
       at = text.find_first_not_of(' ', at)) {
    const size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::string_view word_for(std::string_view pairs, std::string_view theirs) {
  for (const std::string_view pair : words_of(pairs)) {
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) == theirs) return pair.substr(equals + 1);
  }
  return {};
}

const KeyRow* Program::row_of(std::string_view key) const {
  for (const std::span<const KeyRow> table : tables)
    for (const KeyRow& row : table)
      if (std::ranges::count(words_of(row.theirs), key) > 0) return &row;
  return nullptr;
}

std::vector<std::string> Program::keys() const {
  std::vector<std::string> keys;
  for (const std::span<const KeyRow> table : tables)
    for (const KeyRow& row : table)
      for (const std::string_view key : words_of(row.theirs)) keys.emplace_back(key);
  return keys;
}

// --- from the tree to keys ---

void Draft::collect(const YamlNode& node, const std::string& key) {
  const KeyRow* row = program_.row_of(key);
  const std::vector<std::string> known = program_.keys();
  const bool leads_on = std::ranges::any_of(
      known, [&](const std::string& other) { return other.starts_with(key + "."); });
  if (node.kind == YamlNode::Kind::Map && (key.empty() || leads_on)) {
    for (const auto& [word, child] : node.entries)
      collect(child, key.empty() ? word : plain_key(key + "." + word));
    return;
  }
  const auto earlier = std::ranges::find(found_, key, &Found::key);
  if (earlier != found_.end() && earlier->node.text != node.text)
    refuse(key, "",
           fmt::format("is {} here and {} in line {}; leave one of them out", earlier->node.text,
                       node.text, node.line));
  if (earlier == found_.end()) found_.push_back({key, node});
  if (row != nullptr || (leads_on && !is_on(node))) return;
  if (find(key) == nullptr) return idle(key, "has no value");
  const std::string near = nearest_name(key, known);
  refuse(key, "",
         near.empty()
             ? fmt::format("{} has no such key, as far as snug knows; leave it out", program_.name)
             : fmt::format("unknown key of {}; did you mean {}?", program_.name, near));
}

void Draft::read(const YamlNode& tree) {
  collect(tree, "");
  for (const std::span<const KeyRow> table : program_.tables)
    for (const KeyRow& row : table)
      for (const std::string_view key : words_of(row.theirs))
        if (program_.row_of(key) == &row) apply(row, key);
  program_.finish(*this);
  drop_adapters_of_full();
}

void Draft::apply(const KeyRow& row, std::string_view key) {
  const Found* found = find(key);
  if (row.way == Way::By && found != nullptr) row.by(*this, *found);
  if (row.way == Way::Idle && found != nullptr) idle(key, std::string(row.detail));
  if (row.way == Way::Off && found != nullptr) {
    if (is_on(found->node))
      refuse(key, row.ours, std::string(row.detail));
    else
      idle(key, "off, as it always is here");
  }
  if (row.way != Way::Same && row.way != Way::Words) return;
  if (found != nullptr && !is_plain(found->node))
    return refuse(key, row.ours, "must be a plain value");
  if (found == nullptr && row.unset.empty()) return;
  if (row.way == Way::Same)
    return set(row.ours,
               found != nullptr ? value_of(found->node)
                                : Value{.kind = Value::Kind::Text, .text = std::string(row.unset)},
               key);
  const std::string word = lower(text(key));
  const std::string_view ours = word_for(row.detail, word);
  if (ours.empty())
    refuse(key, row.ours,
           fmt::format("\"{}\" is not among what snug has: {}; choose another with --{}", word,
                       fmt::join(their_words(row.detail), ", "), row.ours));
  else
    set(row.ours, ours, key);
}

// --- what the tables and `finish` ask for ---

const Found* Draft::find(std::string_view key) const {
  const auto found = std::ranges::find(found_, key, &Found::key);
  const bool has_value = found != found_.end() && found->node.kind != YamlNode::Kind::Null &&
                         !(found->node.kind == YamlNode::Kind::Scalar && !found->node.quoted &&
                           is_null_word(found->node.text));
  return has_value ? &*found : nullptr;
}

bool Draft::is_null(std::string_view key) const {
  return std::ranges::find(found_, key, &Found::key) != found_.end() && find(key) == nullptr;
}

std::string Draft::text(std::string_view key) const {
  if (const Found* found = find(key)) return found->node.text;
  const KeyRow* row = program_.row_of(key);
  return std::string(row != nullptr ? row->unset : "");
}

std::optional<double> Draft::number(std::string_view key) const { return parse_float(text(key)); }

bool Draft::on(std::string_view key) const {
  const Found* found = find(key);
  return found != nullptr ? is_on(found->node) : !is_off_word(text(key));
}

std::string Draft::where(std::string_view theirs) const {
  const auto found = std::ranges::find(found_, theirs, &Found::key);
  if (found != found_.end()) return fmt::format("{}:{}: {}", file_, found->node.line, theirs);
  const std::string_view name = program_.name.substr(0, program_.name.find(" ("));
  return fmt::format("{}: {} ({}'s default)", file_, theirs, name);
}

void Draft::set(std::string_view ours, Value value, std::string_view theirs) {
  out_.settings.push_back({std::string(ours), std::move(value), where(theirs)});
}

void Draft::set(std::string_view ours, std::string_view value, std::string_view theirs) {
  set(ours, Value{.kind = Value::Kind::Text, .text = std::string(value)}, theirs);
}

void Draft::differs(std::string_view theirs, std::string why) {
  out_.differing.push_back({where(theirs), std::move(why)});
}

void Draft::idle(std::string_view theirs, std::string why) {
  out_.idle.push_back({where(theirs), std::move(why)});
}

void Draft::refuse(std::string_view theirs, std::string_view ours, std::string why) {
  out_.refused.push_back({{where(theirs), std::move(why)}, std::string(ours)});
}

bool Draft::trains_all_weights() const {
  return std::ranges::any_of(out_.settings, [](const Setting& setting) {
    return setting.key == "full" && setting.value.text == "true";
  });
}

// Options of adapters stand idle in recipes that train all weights.
void Draft::drop_adapters_of_full() {
  if (!trains_all_weights()) return;
  Recipe recipe;
  const std::vector<Row> rows = recipe_rows(recipe);
  std::erase_if(out_.settings, [&](const Setting& setting) {
    const Row* row = find_row(rows, setting.key);
    const bool drops = row != nullptr && row->lora_only && setting.key != "quantize";
    if (drops && !setting.where.ends_with("default)"))
      out_.idle.push_back({setting.where, "all weights are trained, without adapters"});
    return drops;
  });
}

void Draft::merge(Imported other) {
  std::ranges::move(other.settings, std::back_inserter(out_.settings));
  std::ranges::move(other.differing, std::back_inserter(out_.differing));
  std::ranges::move(other.idle, std::back_inserter(out_.idle));
  std::ranges::move(other.refused, std::back_inserter(out_.refused));
  if (other.deepspeed) out_.deepspeed = other.deepspeed;
}

DeepSpeed& Draft::deepspeed() {
  return out_.deepspeed ? *out_.deepspeed : out_.deepspeed.emplace();
}

Imported Draft::take() {
  out_.program = program_.name;
  return std::move(out_);
}

}  // namespace snug::recipe
