// Settings -> members, through the rows. Every fault is collected, so that a recipe with three
// mistakes is mended in one go. A class (optimizer, data) is chosen before its arguments are set,
// whatever their order, because choosing one loads defaults.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "recipe/options/row.h"
#include "recipe/settings.h"

namespace snug::recipe {

struct OptionTable {
  std::vector<Row> rows;      // bound to the struct that is filled
  std::vector<Row> defaults;  // the same rows bound to a struct of defaults
  std::vector<Row> foreign;   // rows that only another command has, and its name
  std::string foreign_home;
};

struct Outcome {
  std::set<std::string> given;  // keys of rows that were set
  std::vector<std::string> faults;
};

// One source of settings. In a file a key may be said once; on the command line the last one
// counts.
void apply_settings(std::vector<Setting> settings, const OptionTable& table, bool is_file,
                    Outcome& outcome);

}  // namespace snug::recipe
