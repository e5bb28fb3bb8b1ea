// Between text and rows: a setting is one key with the value and the place where it was found. A
// file and the command line both become a list of settings, so that what follows cannot treat them
// differently. Keys are made canonical here: dots between words, underscores, no "init_args".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/options/row.h"
#include "recipe/yaml.h"

namespace snug::recipe {

struct Setting {
  std::string key;
  Value value;
  std::string where;  // "recipe.yaml:12: train.epochs" or "--train.epochs", as the user wrote it
};

// "data.init_args.json-path" -> "data.json_path".
std::string canonical_key(std::string_view key);

// The leaves of a tree under `prefix`. `name` is the file or option in front of every place.
std::vector<Setting> settings_of_tree(const YamlNode& tree, const std::string& prefix,
                                      const std::string& name);
std::vector<Setting> settings_of_file(std::string_view text, const std::string& name);

// What stood on the command line after the command's name.
struct Words {
  std::vector<Setting> settings;
  std::vector<Setting> positionals;  // key empty
  bool help = false;
  bool help_all = false;  // --help all
  bool print_config = false;
  std::string config;  // --config FILE
  struct Option {
    std::string key;
    size_t begin = 0, end = 0;  // its words: the name and what was taken as its value
  };
  std::vector<Option> options;
};
// `rows` tells flags, which may stand alone, from options that want a value.
Words read_words(const std::vector<std::string>& words, const std::vector<Row>& rows);

}  // namespace snug::recipe
