// Checks of a whole recipe: values that contradict each other and combinations that are not
// supported. They run before any model file is read and report all faults in one UserError.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "recipe/options/commands.h"
#include "recipe/recipe.h"

namespace snug::recipe {

// Every fault of the recipe, one sentence each: the key, its value and what works instead.
std::vector<std::string> recipe_faults(Command command, const Recipe& recipe);

// Those of the data options; `given` are the keys that were set.
std::vector<std::string> data_faults(const DataOptions& data, const std::set<std::string>& given);

// Those of the devices and batch sizes.
std::vector<std::string> layout_faults(const Recipe& recipe);

// Throws one UserError that lists recipe_faults; it begins with `file` unless that is empty.
void check_recipe(Command command, const Recipe& recipe, const std::string& file = "");

}  // namespace snug::recipe
