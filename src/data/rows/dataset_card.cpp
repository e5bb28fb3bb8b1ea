// SPDX-License-Identifier: Apache-2.0
#include "data/rows/dataset_card.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "recipe/yaml.h"

namespace snug::data {
namespace {

namespace fs = std::filesystem;
using recipe::YamlNode;

constexpr size_t kMostOfCard = size_t{4} << 20;  // bytes

const YamlNode* value_of(const YamlNode& map, std::string_view key) {
  for (const auto& [name, value] : map.entries)
    if (name == key) return &value;
  return nullptr;
}

std::string text_of(const YamlNode& map, std::string_view key) {
  const YamlNode* node = value_of(map, key);
  return node == nullptr ? "" : node->text;
}

std::string words_of(const YamlNode& node) {
  std::string words = node.text;
  for (const YamlNode& item : node.items) words += (words.empty() ? "" : ", ") + item.text;
  return words;
}

// A path or several.
std::vector<std::string> patterns_of(const YamlNode& node) {
  std::vector<std::string> patterns;
  const auto add = [&](std::string text) {
    if (text.starts_with("./")) text.erase(0, 2);
    if (!text.empty()) patterns.push_back(std::move(text));
  };
  add(node.text);
  for (const YamlNode& item : node.items) add(item.text);
  return patterns;
}

// "data_files": a path, paths, or splits with their paths, as a list or a mapping.
std::vector<CardSplit> splits_of(const YamlNode& files) {
  std::vector<CardSplit> splits;
  for (const YamlNode& item : files.items)
    if (const YamlNode* path = value_of(item, "path"))
      splits.push_back({text_of(item, "split"), patterns_of(*path)});
  for (const auto& [name, path] : files.entries) splits.push_back({name, patterns_of(path)});
  if (!splits.empty()) return splits;
  std::vector<std::string> all = patterns_of(files);
  if (!all.empty()) splits.push_back({"train", std::move(all)});
  return splits;
}

CardConfiguration configuration_of(const YamlNode& node) {
  CardConfiguration one{.name = text_of(node, "config_name"),
                        .is_default = text_of(node, "default") == "true"};
  if (one.name == "default") one.is_default = true;
  if (const YamlNode* files = value_of(node, "data_files")) one.splits = splits_of(*files);
  if (one.splits.empty()) one.folder = text_of(node, "data_dir");
  while (one.folder.ends_with('/')) one.folder.pop_back();
  if (one.folder.starts_with('/') || one.folder.find("..") != std::string::npos) one.folder.clear();
  return one;
}

}  // namespace

const CardConfiguration* DatasetCard::find(const std::string& subset,
                                           const std::string& where) const {
  std::vector<std::string> names;
  for (const CardConfiguration& one : configurations) {
    names.push_back(one.name);
    if (one.name == subset || (subset.empty() && (one.is_default || configurations.size() == 1)))
      return &one;
  }
  if (names.empty()) return nullptr;
  if (subset.empty())
    throw UserError("{} has several subsets; choose one with --data.subset: {}", where,
                    fmt::join(names, ", "));
  throw UserError("{}: no subset {} (data.subset); there are {}", where, subset,
                  fmt::join(names, ", "));
}

DatasetCard read_dataset_card(const fs::path& readme) {
  DatasetCard card;
  std::error_code ignored;
  if (!fs::is_regular_file(readme, ignored)) return card;
  try {
    const std::string text = read_file(readme, kMostOfCard);
    const size_t end = text.find("\n---", 3);
    if (!text.starts_with("---\n") || end == text.npos) return card;
    const YamlNode head =
        recipe::read_yaml(std::string_view(text).substr(4, end - 3), readme.string());
    if (const YamlNode* licence = value_of(head, "license")) card.licence = words_of(*licence);
    if (const YamlNode* all = value_of(head, "configs"))
      for (const YamlNode& node : all->items)
        if (CardConfiguration one = configuration_of(node);
            !one.splits.empty() || !one.folder.empty())
          card.configurations.push_back(std::move(one));
  } catch (const UserError& error) {
    warn("{}", error.what());
  }
  return card;
}

}  // namespace snug::data
