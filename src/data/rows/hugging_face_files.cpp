// Which files a split of a Hugging Face data set lies in.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "data/rows/hugging_face.h"

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

std::vector<fs::path> files_ending(const fs::path& folder, const char* ending) {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied))
    if (entry.is_regular_file() && entry.path().extension() == ending &&
        !entry.path().filename().string().starts_with("cache-"))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// train-00000-of-00002.parquet, train.parquet, train/0000.parquet: the split is a whole word.
std::string split_of(const fs::path& file, const fs::path& root) {
  const std::string name = file.stem().string();
  const std::string word = name.substr(0, name.find_first_of("-."));
  if (word.find_first_not_of("0123456789") != std::string::npos) return word;
  const fs::path folder = file.parent_path();
  return folder == root ? "" : folder.filename().string();
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
  if (split == "train" && splits.size() == 1) return files;
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

std::vector<fs::path> hugging_face_files(const fs::path& path, const std::string& split) {
  if (path.empty())
    throw UserError("--data HFDataset needs --data.path: a folder of save_to_disk or of Parquet");
  if (!fs::exists(path))
    throw UserError(
        "data.path: {} does not exist; put the data set there (a course's archive, unpacked), or "
        "name another with --data.path",
        path.string());
  std::vector<fs::path> files;
  if (!fs::is_directory(path)) {
    files = {path};
  } else {
    const fs::path folder = split_folder(path, split);
    if (fs::exists(folder / "state.json"))
      files = saved_files(folder);
    else if (files = files_ending(folder, ".arrow"); files.empty())
      files = files_ending(folder, ".parquet");
    if (!fs::exists(folder / "state.json") && !files.empty())
      files = of_split(files, folder, split);
  }
  for (const fs::path& file : files)
    if (file.extension() != ".arrow" && file.extension() != ".parquet") files.clear();
  if (files.empty())
    throw UserError(
        "{}: no data set of Hugging Face's: neither state.json nor dataset_dict.json (of "
        "save_to_disk) nor .arrow or .parquet files{}",
        path.string(),
        fs::exists(path / "metadata.jsonl") || fs::exists(path / "metadata.csv")
            ? "; pictures with a metadata file are --data ImageFolder"
            : "");
  return files;
}

}  // namespace snug::data
