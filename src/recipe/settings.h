// From text to options: a setting is one key with its value and the place where it was found. A
// file and the command line both become a list of settings, which are then stored through the rows.
// Keys are made canonical here: dots between words, underscores, no "init_args".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <set>
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

// The command line after the command's name.
struct Words {
  std::vector<Setting> settings;
  std::vector<Setting> positionals;  // key empty
  bool help = false;
  bool help_all = false;  // --help all
  bool print_config = false;
  std::string config;  // --config FILE
  struct Option {
    std::string key;
    size_t begin = 0, end = 0;  // its words: the name and the value
  };
  std::vector<Option> options;
};
// `rows` tells flags, which may stand alone, from options that need a value.
Words read_words(const std::vector<std::string>& words, const std::vector<Row>& rows);

struct OptionTable {
  std::vector<Row> rows;      // bound to the struct that is filled
  std::vector<Row> defaults;  // the same rows bound to a struct of defaults
  std::vector<Row> foreign;   // rows that only another command has
  std::string foreign_home;   // the name of that command
};

struct Outcome {
  std::set<std::string> given;  // keys of rows that were set
  std::vector<std::string> faults;
};

// Stores the settings of one source and collects every fault. A class (optimizer, data) is set
// before its arguments, whatever their order, because choosing one loads its defaults. A file may
// set a key once; on the command line the last setting counts, but two names of one option that say
// different things (--bf16, --precision) are a fault.
void apply_settings(std::vector<Setting> settings, const OptionTable& table, bool is_file,
                    Outcome& outcome);

}  // namespace snug::recipe
