// Which files a split of a Hugging Face data set lies in.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "data/rows/dataset_card.h"
#include "data/rows/hugging_face.h"
#include "recipe/data_sources.h"

namespace snug::data {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

json read_json_file(const fs::path& path) {
  json value = json::parse(read_file(path, size_t{1} << 26), nullptr, false);
  if (!value.is_object()) throw UserError("{}: not a JSON object", path.string());
  return value;
}

// The names in a list of strings, or under `key` in a list of objects.
std::vector<std::string> names_in(const json& file, const char* list, const char* key,
                                  const fs::path& path) {
  std::vector<std::string> names;
  const auto found = file.find(list);
  if (found == file.end() || !found->is_array())
    throw UserError("{}: no list \"{}\"", path.string(), list);
  for (const json& entry : *found) {
    const json* name = &entry;
    if (key != nullptr) name = entry.is_object() && entry.contains(key) ? &entry[key] : nullptr;
    if (name == nullptr || !name->is_string())
      throw UserError("{}: \"{}\" must hold names", path.string(), list);
    names.push_back(name->get<std::string>());
  }
  return names;
}

bool is_metadata(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with("cache-") || name.starts_with('.') || name == "dataset_infos.json" ||
         name == "dataset_info.json" || name == "dataset_dict.json" || name == "state.json";
}

bool is_compressed_file(const fs::path& file) {
  return file.extension() == ".gz" || file.extension() == ".zst";
}

// ".jsonl" of rows.jsonl.gz.
std::string kind_of(const fs::path& file) {
  return (is_compressed_file(file) ? file.stem() : file).extension().string();
}

std::vector<fs::path> all_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied))
    if (entry.is_regular_file() && !is_metadata(entry.path())) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

// Those in the first of these formats that any is in.
std::vector<fs::path> of_one_format(const std::vector<fs::path>& files) {
  for (const std::string_view kind : {".arrow", ".parquet", ".jsonl", ".json", ".csv", ".tsv"}) {
    std::vector<fs::path> same;
    for (const fs::path& file : files)
      if (kind_of(file) == kind) same.push_back(file);
    if (!same.empty()) return same;
  }
  return {};
}

// What a word in a file's or folder's name says; empty: nothing.
std::string split_named(const std::string& word) {
  static const std::map<std::string, std::string> kNames = {
      {"train", "train"},      {"training", "train"}, {"validation", "validation"},
      {"valid", "validation"}, {"val", "validation"}, {"dev", "validation"},
      {"test", "test"},        {"testing", "test"},   {"eval", "test"},
      {"evaluation", "test"}};
  const auto found = kNames.find(word);
  return found == kNames.end() ? "" : found->second;
}

std::string split_in(const std::string& name) {
  std::string word;
  for (const char letter : name + ".") {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
      continue;
    }
    if (std::string found = split_named(word); !found.empty()) return found;
    word.clear();
  }
  return "";
}

// train-00000-of-00002.parquet (the hub's own names, of any split: train_sft-…), train.parquet,
// train/0000.parquet, my-train-rows.csv.
std::string split_of(const fs::path& file, const fs::path& root) {
  const std::string name = file.stem().string();
  static const std::regex kNumbered(R"(([A-Za-z0-9_.]+)-\d{5}-of-\d{5}.*)");
  if (std::smatch parts; std::regex_match(name, parts, kNumbered)) return parts[1];
  if (std::string found = split_in(name); !found.empty()) return found;
  for (fs::path folder = file.parent_path(); folder != root && folder.has_relative_path();
       folder = folder.parent_path())
    if (std::string found = split_in(folder.filename().string()); !found.empty()) return found;
  const fs::path folder = file.parent_path();
  const bool is_number = name.find_first_not_of("0123456789") == std::string::npos;
  if (is_number) return folder == root ? "" : folder.filename().string();
  return name.substr(0, name.find_first_of("-."));
}

// A glob of the hub's: '*' also takes '/', and "**/" nothing at all.
bool matches(const std::string& pattern, const std::string& path) {
  if (fnmatch(pattern.c_str(), path.c_str(), 0) == 0) return true;
  const size_t any = pattern.find("**/");
  return any != std::string::npos &&
         matches(pattern.substr(0, any) + pattern.substr(any + 3), path);
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& path) {
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return matches(pattern, path); });
}

const CardSplit& split_of_card(const CardConfiguration& one, const fs::path& root,
                               const std::string& split) {
  const auto found = std::ranges::find(one.splits, split, &CardSplit::name);
  if (found != one.splits.end()) return *found;
  std::vector<std::string> names;
  for (const CardSplit& own : one.splits) names.push_back(own.name);
  throw UserError("{}: no split {} (data.split, data.val_split); splits of {}: {}", root.string(),
                  split, one.name.empty() ? "this data set" : one.name, fmt::join(names, ", "));
}

// Of a configuration that names its splits.
std::vector<fs::path> of_configuration(const CardConfiguration& one, const fs::path& root,
                                       const std::string& split) {
  const CardSplit& own = split_of_card(one, root, split);
  std::vector<fs::path> chosen;
  for (const fs::path& file : all_files(root))
    if (matches_any(own.patterns, file.lexically_relative(root).generic_string()))
      chosen.push_back(file);
  if (chosen.empty())
    throw UserError("{}: no file is there for {} of split {}, which its README.md names",
                    root.string(), fmt::join(own.patterns, ", "), split);
  return chosen;
}

std::vector<fs::path> of_split(const std::vector<fs::path>& files, const fs::path& root,
                               const std::string& split) {
  std::vector<fs::path> chosen;
  std::set<std::string> splits;
  for (const fs::path& file : files) {
    const std::string name = split_of(file, root);
    splits.insert(name);
    if (name == split) chosen.push_back(file);
  }
  if (!chosen.empty()) return chosen;
  const bool names_none =
      std::ranges::all_of(splits, [](const auto& name) { return split_named(name).empty(); });
  if (split == "train" && (splits.size() == 1 || names_none)) return files;
  throw UserError("{}: no split {} (data.split); splits found: {}", root.string(), split,
                  fmt::join(splits, ", "));
}

std::vector<fs::path> saved_files(const fs::path& folder) {
  const fs::path state = folder / "state.json";
  std::vector<fs::path> files;
  for (const std::string& name :
       names_in(read_json_file(state), "_data_files", "filename", state)) {
    files.push_back(folder / fs::path(name).filename());
    if (!fs::is_regular_file(files.back()))
      throw UserError("{} names {}, which is not there", state.string(), name);
  }
  if (files.empty())
    throw UserError("{} names no files: the data set was saved without rows", state.string());
  return files;
}

fs::path split_folder(const fs::path& path, const std::string& split) {
  const fs::path list = path / "dataset_dict.json";
  if (!fs::exists(list)) {
    if (split != "train" && fs::exists(path / "state.json"))
      throw UserError("{}: no split {} (data.split); it is one data set without splits",
                      path.string(), split);
    return path;
  }
  const std::vector<std::string> splits = names_in(read_json_file(list), "splits", nullptr, list);
  if (std::find(splits.begin(), splits.end(), split) == splits.end())
    throw UserError("{}: no split {} (data.split); splits found: {}", path.string(), split,
                    fmt::join(splits, ", "));
  return path / split;
}

}  // namespace

fs::path hugging_face_folder(const fs::path& path) {
  if (path.empty())
    throw UserError("--data HFDataset needs --data.path: a folder of save_to_disk or of the hub");
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path;
  if (!recipe::names_hub_set(path.string()))
    throw UserError(
        "data.path: {} does not exist; put the data set there (a course's archive, unpacked), or "
        "name another with --data.path",
        path.string());
  fs::path fetched = fs::path("data") / path;
  if (!fs::exists(fetched, ignored))
    throw UserError(
        "{0} is no folder here, and data/{0} is not there either; where there is a network, snug "
        "download --data {0} fetches it, and the folder data/{0} can be copied here",
        path.string());
  return fetched;
}

std::vector<std::string> wanted_patterns(const fs::path& readme,
                                         const HuggingFaceOptions& options) {
  const DatasetCard card = read_dataset_card(readme);
  const CardConfiguration* own = card.find(options.subset, readme.parent_path().string());
  std::vector<std::string> patterns;
  if (own == nullptr) return patterns;
  if (!own->folder.empty()) return {own->folder + "/*"};
  return split_of_card(*own, readme.parent_path(), options.split).patterns;
}

std::vector<fs::path> hugging_face_files(const HuggingFaceOptions& options) {
  const fs::path path = hugging_face_folder(options.path);
  std::vector<fs::path> files;
  if (!fs::is_directory(path)) {
    files = {path};
  } else {
    const fs::path folder = split_folder(path, options.split);
    const DatasetCard card = read_dataset_card(folder / "README.md");
    const CardConfiguration* own = card.find(options.subset, folder.string());
    if (own == nullptr && !options.subset.empty() && !fs::is_directory(folder / options.subset))
      throw UserError(
          "{}: no subset {} (data.subset): its README.md names none, and there is no folder of "
          "that name",
          folder.string(), options.subset);
    const fs::path root = folder / (own == nullptr ? options.subset : own->folder);
    if (fs::exists(folder / "state.json"))
      files = saved_files(folder);
    else if (own != nullptr && own->folder.empty())
      files = of_one_format(of_configuration(*own, root, options.split));
    else if (files = of_one_format(all_files(root)); !files.empty())
      files = of_split(files, root, options.split);
  }
  if (files.empty() || of_one_format(files).size() != files.size())
    throw UserError(
        "{}: no data set of Hugging Face's: neither state.json nor dataset_dict.json (of "
        "save_to_disk) nor .arrow, .parquet, .jsonl, .json, .csv or .tsv files{}",
        path.string(),
        fs::exists(path / "metadata.jsonl") || fs::exists(path / "metadata.csv")
            ? "; pictures with a metadata file are --data ImageFolder"
            : "");
  return files;
}

bool is_arrow_file(const fs::path& file) {
  return file.extension() == ".arrow" || file.extension() == ".parquet";
}

std::vector<Row> read_hugging_face_rows(const HuggingFaceOptions& options, const Columns& columns) {
  const std::vector<fs::path> files = hugging_face_files(options);
  if (is_arrow_file(files.front())) return read_arrow_rows(files, columns);
  std::vector<Row> rows;
  for (const fs::path& file : files)
    std::ranges::move(read_rows(file, columns), std::back_inserter(rows));
  return rows;
}

}  // namespace snug::data
