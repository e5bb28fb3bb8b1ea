// The resolved recipe as text: YAML that parsing reads back to the same values, and JSON for
// run.json; and the command line that was typed. The access token is left out of all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "recipe/recipe.h"

namespace snug::recipe {

std::string print_recipe_yaml(const Recipe& recipe);
nlohmann::json recipe_json(const Recipe& recipe);

// `snug words…` as it can be pasted into a shell, with secrets replaced by ***.
std::string print_command(std::span<const std::string> words);

}  // namespace snug::recipe
