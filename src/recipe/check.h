// What a recipe may not say, whole: values that do not go together and techniques that this version
// does not have yet. Called before a byte of a model is read; reports all faults in one UserError.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "recipe/options/commands.h"
#include "recipe/recipe.h"

namespace snug::recipe {

// Every fault of the recipe, each one sentence: key, value found, what works. Empty = none.
std::vector<std::string> recipe_faults(Command command, const Recipe& recipe);

// The part of it that is about data; `given` are the keys that somebody chose.
std::vector<std::string> data_faults(const DataOptions& data, const std::set<std::string>& given);

// The part of it that is about how several devices share the work.
std::vector<std::string> layout_faults(const Recipe& recipe);

// Throws one UserError that lists recipe_faults; `file` is named in front when not empty.
void check_recipe(Command command, const Recipe& recipe, const std::string& file = "");

}  // namespace snug::recipe
