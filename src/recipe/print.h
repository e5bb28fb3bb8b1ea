// The resolved recipe as text: YAML that parses back to the same values, JSON for run.json, and the
// differences between two recipes; and the command line as it was typed. YAML, JSON and command do
// not contain the access token.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "recipe/recipe.h"

namespace snug::recipe {

std::string print_recipe_yaml(const Recipe& recipe);
nlohmann::json recipe_json(const Recipe& recipe);

// `snug words…` as it can be pasted into a shell, with secrets replaced by ***.
std::string print_command(std::span<const std::string> words);

// The keys whose values differ, with the values of `to`: text that another process can apply.
std::map<std::string, std::string> differences(Recipe from, Recipe to);
// Sets these values in `recipe`. Throws InternalError for a value that its row refuses.
void apply_differences(Recipe& recipe, const std::map<std::string, std::string>& values);

}  // namespace snug::recipe
