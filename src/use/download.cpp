// snug download: a model's files, or a data set's with the licence that its card names.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "files/hub/download.h"
#include "files/hub/meter.h"
#include "recipe/yaml.h"
#include "use/commands.h"

namespace snug::use {
namespace {

namespace fs = std::filesystem;
using recipe::YamlNode;

constexpr size_t kMostOfCard = size_t{4} << 20;  // bytes

std::string words_of(const YamlNode& node) {
  std::string words = node.text;
  for (const YamlNode& item : node.items) words += (words.empty() ? "" : ", ") + item.text;
  return words;
}

// "cc-by-4.0": `license` of the YAML between the first two lines of dashes; empty: it names none.
std::string licence_of(const fs::path& card) {
  if (!fs::exists(card)) return "";
  try {
    const std::string text = read_file(card, kMostOfCard);
    const size_t end = text.find("\n---", 3);
    if (!text.starts_with("---\n") || end == text.npos) return "";
    const YamlNode head =
        recipe::read_yaml(std::string_view(text).substr(4, end - 3), card.string());
    for (const auto& [key, value] : head.entries)
      if (key == "license") return words_of(value);
  } catch (const UserError& error) {
    warn("{}", error.what());
  }
  return "";
}

// The option that reads such files; empty: none of snug's does.
std::string reader_of(const std::vector<fs::path>& files) {
  const auto has = [&](auto&& is_it) { return std::ranges::any_of(files, is_it); };
  if (has([](const fs::path& file) { return file.stem() == "metadata"; })) return "ImageFolder";
  if (has([](const fs::path& file) {
        return file.extension() == ".parquet" || file.extension() == ".arrow";
      }))
    return "HFDataset";
  return "";
}

// Rows of text in a file of their own.
std::string row_file(const std::vector<fs::path>& files) {
  for (const fs::path& file : files)
    for (const char* ending : {".jsonl", ".csv", ".tsv", ".json"})
      if (file.extension() == ending && file.filename() != "dataset_infos.json")
        return file.string();
  return "";
}

void tell_of_data(const std::string& folder, const std::vector<fs::path>& files) {
  const std::string licence = licence_of(fs::path(folder) / "README.md");
  if (licence.empty())
    fmt::print(
        "Licence: its README.md names none; ask before you pass on what you train with it\n");
  else
    fmt::print("Licence: {}, says its README.md\n", printable(licence));
  const std::string reader = reader_of(files), rows = row_file(files);
  if (!reader.empty())
    fmt::print("In a recipe or command: --data {} --data.path {}\n", reader, folder);
  else if (!rows.empty())
    fmt::print("In a recipe or command: --data {}\n", rows);
  else
    fmt::print(
        "None of these files is in a form that snug reads: Parquet, Arrow, JSON, JSONL, CSV, or "
        "pictures with metadata.jsonl or metadata.csv\n");
}

}  // namespace

void download(const recipe::DownloadOptions& options) {
  set_verbose(options.verbose);
  const bool is_data = !options.data.empty();
  if (is_data == !options.repo_id.empty())
    throw UserError(
        "snug download needs a model's repository (snug download ORG/NAME) or a data set's (snug "
        "download --data ORG/NAME){}",
        is_data ? ", one of them" : "");
  const std::string& name = is_data ? options.data : options.repo_id;
  const std::string folder = (is_data ? options.data_dir : options.checkpoint_dir) + "/" + name;
  hub::ProgressLine line;
  const std::vector<fs::path> files =
      hub::download({.repo_id = name,
                     .repo_type = is_data ? "dataset" : "model",
                     .revision = options.revision,
                     .directory = folder,
                     .endpoint = options.endpoint,
                     .token = options.access_token},
                    [&](const hub::Progress& progress) { line.show(progress); });
  line.end();
  fmt::print("{} files in {}\n", files.size(), folder);
  if (is_data) tell_of_data(folder, files);
}

}  // namespace snug::use
