// What the YAML at the beginning of a data set's README.md says, as the hub's data sets have it:
// the licence, and which files the splits of each configuration are in.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace snug::data {

struct CardSplit {
  std::string name;
  std::vector<std::string> patterns;  // of paths in the data set's folder, as globs
};

struct CardConfiguration {
  std::string name;
  bool is_default = false;
  std::vector<CardSplit> splits;
  std::string folder;  // without splits: where names of files say them
};

struct DatasetCard {
  std::string licence;                            // "cc-by-4.0"; empty: it names none
  std::vector<CardConfiguration> configurations;  // none: the files' names say it

  // The configuration `subset`, or if that is empty the default or only one; null if the card has
  // none. Throws UserError with their names if there is no such one, or none is the default.
  const CardConfiguration* find(const std::string& subset, const std::string& where) const;
};

// Of a file that is not there, or without such a beginning: nothing. Warns of what is no YAML.
DatasetCard read_dataset_card(const std::filesystem::path& readme);

}  // namespace snug::data
