// snug download: a model's files, or a data set's with the licence that its card names.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/rows/dataset_card.h"
#include "files/hub/download.h"
#include "files/hub/meter.h"
#include "use/commands.h"

namespace snug::use {
namespace {

namespace fs = std::filesystem;

// The option that reads such files; empty: none of snug's does.
std::string reader_of(const std::vector<fs::path>& files) {
  const auto has = [&](auto&& is_it) { return std::ranges::any_of(files, is_it); };
  if (has([](const fs::path& file) { return file.stem() == "metadata"; })) return "ImageFolder";
  const auto is_data = [](const fs::path& file) {
    const std::string name = file.filename().string();
    return name != "dataset_infos.json" && name != "dataset_dict.json" &&
           std::ranges::any_of(
               std::to_array<std::string_view>(
                   {".parquet", ".arrow", ".jsonl", ".json", ".csv", ".tsv", ".gz", ".zst"}),
               [&](std::string_view ending) { return name.ends_with(ending); });
  };
  return has(is_data) ? "HFDataset" : "";
}

void tell_of_subsets(const data::DatasetCard& card) {
  if (card.configurations.size() < 2) return;
  fmt::print("Subsets, for --data.subset:");
  for (const data::CardConfiguration& one : card.configurations)
    fmt::print(" {}{}", printable(one.name), one.is_default ? " (unless one is given)" : "");
  fmt::print("\n");
}

// `name`: ORG/NAME if it is where --data ORG/NAME looks for it.
void tell_of_data(const std::string& folder, const std::string& name,
                  const std::vector<fs::path>& files) {
  const data::DatasetCard card = data::read_dataset_card(fs::path(folder) / "README.md");
  if (card.licence.empty())
    fmt::print(
        "Licence: its README.md names none; ask before you pass on what you train with it\n");
  else
    fmt::print("Licence: {}, says its README.md\n", printable(card.licence));
  tell_of_subsets(card);
  const std::string reader = reader_of(files);
  if (reader == "HFDataset" && !name.empty())
    fmt::print("In a recipe or command: --data {}\n", name);
  else if (!reader.empty())
    fmt::print("In a recipe or command: --data {} --data.path {}\n", reader, folder);
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
  if (is_data) tell_of_data(folder, options.data_dir == "data" ? name : "", files);
}

}  // namespace snug::use
