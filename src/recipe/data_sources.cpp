// SPDX-License-Identifier: Apache-2.0
#include "recipe/data_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "recipe/options/names.h"
#include "recipe/options/rows.h"
#include "recipe/yaml.h"

namespace snug::recipe {
namespace {

constexpr std::string_view kSources = "data.sources";
constexpr std::string_view kExample = "[chats.jsonl, {file: code.jsonl, weight: 2}]";

// What all sources have in common: the model's template and tokens, and how samples are drawn.
constexpr std::array<std::string_view, 9> kForAll = {
    "data.sources", "data.chat_template", "data.eos_token",
    "tokens.add",   "data.ignore_index",  "data.packing",
    "data.seed",    "data.num_workers",   "data.padding_in_loss"};
// What names the rows of one source.
constexpr std::array<std::string_view, 3> kForOne = {"data.json_path", "data.path",
                                                     "data.val_path"};

bool contains(std::span<const std::string_view> keys, std::string_view key) {
  return std::ranges::count(keys, key) > 0;
}

bool is_class(const Setting& setting) {
  return setting.key == "data" || setting.key == "data.class_path" || setting.key == "data.name";
}

bool is_rows_file(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kEndings = {".json", ".jsonl", ".csv", ".tsv",
                                                               ".parquet"};
  for (const std::string_view packed : {".gz", ".zst"})
    if (name.ends_with(packed)) name.remove_suffix(packed.size());
  return std::ranges::any_of(kEndings, [&](std::string_view ending) {
    return name.size() > ending.size() && name.ends_with(ending);
  });
}

YamlNode list_of(const std::vector<std::string>& names) {
  YamlNode list{.kind = YamlNode::Kind::List};
  for (const std::string& name : names)
    list.items.push_back({.kind = YamlNode::Kind::Scalar, .quoted = true, .text = name});
  return list;
}

// A file or a name in a list is short for a mapping.
YamlNode mapping_of(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::Scalar) return node;
  YamlNode mapping{.kind = YamlNode::Kind::Map, .line = node.line};
  mapping.entries.emplace_back("file", node);
  return mapping;
}

// `file` is a folder of the class that stands beside it, or a set by name, a document or rows.
void take_file(Setting& setting, const std::vector<Setting>& beside) {
  const std::string& text = setting.value.text;
  const bool has_folder = std::ranges::any_of(beside, [](const Setting& other) {
    const std::string name = normalise_data(other.value.text);
    return other.key == "data.class_path" && (name == "HFDataset" || name == "TextFiles");
  });
  setting.key = has_folder           ? "data.path"
                : is_data_name(text) ? "data.class_path"
                // of class TextFiles, or a set of the hub
                : is_text_file(text) || names_hub_set(text) ? "data"
                                                            : "data.json_path";
}

std::vector<Row> rows_of_source(DataSource& source) {
  std::vector<Row> rows = data_rows(source.data);
  rows.push_back({.key = "data.weight", .slot = &source.weight, .min = 1e-6, .max = 1000});
  rows.push_back({.key = "data.share", .slot = &source.share, .min = 1e-6, .max = 1});
  return rows;
}

// What stands beside the list, without what says which rows.
DataSource with_defaults(const DataOptions& data, const std::set<std::string>& given) {
  DataSource source{.data = data};
  const DataOptions none;
  source.data.class_path = none.class_path;
  source.data.json_path = source.data.path = source.data.sources = "";
  source.data.val_path.reset();
  for (const std::string& key : given)
    if (key.starts_with("data.") && key != "data.class_path" && !contains(kForAll, key) &&
        !contains(kForOne, key))
      source.given.insert(key);
  return source;
}

// Rows that say themselves which of them to validate on: what stands beside the list is not for
// them.
bool has_own_validation(const DataOptions& data) {
  std::error_code ignored;
  return data.val_path || !data.val_split.empty() ||
         std::filesystem::is_directory(data.json_path, ignored) ||
         data_has_validation(data.class_path);
}

DataSource read_source(const YamlNode& node, const std::string& where, DataSource source,
                       std::vector<std::string>& faults) {
  const YamlNode mapping = mapping_of(node);
  if (mapping.kind != YamlNode::Kind::Map) {
    faults.push_back(fmt::format("{}: must be a file, a name, or a mapping such as {}", where,
                                 "{file: code.jsonl, weight: 2}"));
    return source;
  }
  std::vector<Setting> settings = settings_of_tree(mapping, "data", where);
  for (Setting& setting : settings) {
    setting.where = fmt::format("{}.{}", where, setting.key.substr(setting.key.find('.') + 1));
    if (setting.key == "data.file") take_file(setting, settings);
  }
  std::erase_if(settings, [&](const Setting& setting) {
    const bool is_for_all = contains(kForAll, setting.key) || setting.key == "data.add_tokens";
    if (is_for_all)
      faults.push_back(fmt::format("{}: holds for all sources; give it beside them, as {}",
                                   setting.where,
                                   setting.key == "data.add_tokens" ? "tokens.add" : setting.key));
    return is_for_all;
  });
  take_data_files(settings);
  DataSource fallback = source;
  const OptionTable table{.rows = rows_of_source(source), .defaults = rows_of_source(fallback)};
  Outcome outcome;
  apply_settings(std::move(settings), table, /*is_file=*/true, outcome);
  // A source's keys are written without "data." here.
  constexpr std::string_view kMeant = "did you mean data.";
  for (std::string& fault : outcome.faults) {
    if (const size_t at = fault.find(kMeant); at != std::string::npos)
      fault.erase(at + kMeant.size() - 5, 5);
    faults.push_back(std::move(fault));
  }
  if (has_own_validation(source.data) && !outcome.given.contains("data.val_split_fraction"))
    source.given.erase("data.val_split_fraction");
  source.given.merge(outcome.given);
  if (source.weight && source.share)
    faults.push_back(fmt::format("{}: has a weight and a share; keep one", where));
  if (source.data.class_path == "Synthetic" || source.data.class_path == "ImageFolder" ||
      source.data.class_path == kMix)
    faults.push_back(fmt::format("{}: {} cannot be one of several", where, source.data.class_path));
  // What an adapter was trained with holds for all of them.
  const std::string style = source.data.prompt_style;
  resolve_data(source.data, source.given);
  if (style != DataOptions{}.prompt_style) source.data.prompt_style = style;
  return source;
}

std::string path_of(const DataSource& source) {
  if (!source.data.json_path.empty()) return source.data.json_path;
  return source.data.path.empty() ? source.data.class_path : source.data.path;
}

// Each by the end of its path, or by the whole of it where others end so too.
void name_sources(std::vector<DataSource>& sources) {
  const auto short_name = [](const DataSource& source) {
    const std::filesystem::path path = path_of(source);
    return (path.has_filename() ? path : path.parent_path()).filename().string();
  };
  std::set<std::string> taken;
  for (DataSource& source : sources) {
    const std::string name = short_name(source);
    const bool is_only = std::ranges::count_if(sources, [&](const DataSource& other) {
                           return short_name(other) == name;
                         }) == 1;
    const std::string base = is_only ? name : path_of(source);
    source.name = base;
    for (int64_t n = 2; !taken.insert(source.name).second; ++n)
      source.name = fmt::format("{} {}", base, n);
  }
}

}  // namespace

DataSources data_sources(const DataOptions& data, const std::set<std::string>& given) {
  DataSources found;
  if (data.sources.empty()) return found;
  YamlNode list;
  try {
    list = read_yaml(data.sources, std::string(kSources));
  } catch (const UserError& error) {
    found.faults.emplace_back(error.what());
    return found;
  }
  if (list.kind != YamlNode::Kind::List || list.items.empty()) {
    found.faults.push_back(
        fmt::format("{}: must be a list of data sets, such as {}", kSources, kExample));
    return found;
  }
  for (const std::string_view key : kForOne)
    if (given.contains(std::string(key)))
      found.faults.push_back(
          fmt::format("{} and {} are both set; give it in the source it is of", key, kSources));
  for (size_t i = 0; i < list.items.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", kSources, i + 1);
    const size_t before = found.faults.size();
    DataSource source = read_source(list.items[i], where, with_defaults(data, given), found.faults);
    source.where = where;
    if (found.faults.size() == before) found.all.push_back(std::move(source));
  }
  name_sources(found.all);
  return found;
}

bool has_own(const DataOptions& data, std::string_view key) {
  if (data.sources.empty()) return false;
  const YamlNode list = read_yaml(data.sources, std::string(kSources));
  return std::ranges::any_of(list.items, [&](const YamlNode& source) {
    return std::ranges::any_of(source.entries, [&](const auto& entry) {
      return canonical_key("data." + entry.first) == key;
    });
  });
}

void resolve_data(DataOptions& data, const std::set<std::string>& given) {
  if (!given.contains("data.val_split_fraction"))
    data.val_split_fraction = data.val_path ? 0 : data_val_split_fraction(data.class_path);
  if (!given.contains("data.prompt_style")) data.prompt_style = data_prompt_style(data.class_path);
  if (!given.contains("data.max_samples")) data.max_samples = data_max_samples(data.class_path);
}

bool names_several(const std::string& name) {
  std::error_code ignored;
  const bool is_list = name.starts_with('[') || name.find(',') != std::string::npos;
  return is_list && !std::filesystem::exists(name, ignored);
}

std::string sources_named(const std::string& names, const std::string& where) {
  if (names.starts_with('[')) return one_line(read_yaml(names, where));
  return one_line(list_of(split_list(names)));
}

bool names_hub_set(std::string_view name) {
  const auto is_part = [](std::string_view part) {
    return !part.empty() && part.front() != '.' && std::ranges::all_of(part, [](char letter) {
      return std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
             std::string_view("-_.").find(letter) != std::string_view::npos;
    });
  };
  const size_t slash = name.find('/');
  std::error_code ignored;
  return slash != std::string_view::npos && is_part(name.substr(0, slash)) &&
         is_part(name.substr(slash + 1)) && !is_rows_file(name) && !is_text_file(name) &&
         !std::filesystem::exists(name, ignored);
}

void take_data_files(std::vector<Setting>& settings) {
  std::vector<Setting> taken;
  const bool says_mix = std::ranges::any_of(settings, [](const Setting& setting) {
    return is_class(setting) && setting.value.text == kMix;
  });
  const auto add_class = [&](const Setting& setting, std::string_view name) {
    if (name == kMix && says_mix) return;
    Setting set = setting;
    set.key = "data.class_path";
    set.value = {.kind = Value::Kind::Text, .text = std::string(name)};
    taken.push_back(std::move(set));
  };
  for (Setting& setting : settings) {
    const bool names_data = is_class(setting);
    Value& value = setting.value;
    const bool is_list = value.kind == Value::Kind::List || value.is_tree;
    if (is_list && (names_data || setting.key == kSources)) {
      if (!value.is_tree)
        value = {.kind = Value::Kind::Text, .text = one_line(list_of(value.items))};
      value.is_tree = false;
      add_class(setting, kMix);
      setting.key = kSources;
    } else if (names_data && value.kind == Value::Kind::Text && names_several(value.text)) {
      value.text = sources_named(value.text, setting.where);
      add_class(setting, kMix);
      setting.key = kSources;
    } else if (setting.key == kSources && value.kind == Value::Kind::Text) {
      value.text = sources_named(value.text, setting.where);
      add_class(setting, kMix);
    } else if (names_data && (is_rows_file(value.text) || is_text_file(value.text))) {
      const bool is_document = is_text_file(value.text);
      add_class(setting, is_document ? "TextFiles" : "JSON");
      setting.key = is_document ? "data.path" : "data.json_path";
    } else if (names_data && names_hub_set(value.text)) {
      add_class(setting, "HFDataset");
      setting.key = "data.path";
    }
    taken.push_back(std::move(setting));
  }
  settings = std::move(taken);
}

void replace_data(std::vector<Setting>& file, std::vector<Setting>& options) {
  const auto sets = [](const std::vector<Setting>& settings, std::string_view key) {
    return std::ranges::any_of(settings, [&](const Setting& setting) {
      return setting.key == key || (key == "data.class_path" && is_class(setting));
    });
  };
  const bool is_mix = sets(options, kSources);
  const bool is_one = sets(options, "data.class_path") || sets(options, "data.json_path") ||
                      sets(options, "data.path");
  const bool was_mix = sets(file, kSources);
  if (is_mix) {
    std::erase_if(file, [](const Setting& setting) {
      return is_class(setting) || setting.key == "data.json_path" || setting.key == "data.path";
    });
  } else if (is_one && was_mix) {
    std::erase_if(
        file, [](const Setting& setting) { return setting.key == kSources || is_class(setting); });
  }
  // What the file says of its own rows is not for others.
  const auto named = std::ranges::find_if(options, is_class);
  if (named == options.end()) return;
  const std::string name = normalise_data(named->value.text);
  const bool has_file = name == "JSON";
  const bool has_folder = name == "HFDataset" || name == "ImageFolder" || name == "TextFiles";
  std::erase_if(file, [&](const Setting& setting) {
    const bool is_of_hub = setting.key == "data.subset" || setting.key == "data.val_split";
    const bool is_of_folder = setting.key == "data.path" || setting.key == "data.split";
    return (!has_file && setting.key == "data.json_path") || (!has_folder && is_of_folder) ||
           (name != "HFDataset" && is_of_hub);
  });
}

}  // namespace snug::recipe
