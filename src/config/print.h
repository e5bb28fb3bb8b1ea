// The resolved recipe as text: YAML that load_recipe reads back to the same values, and JSON for
// run.json. The access token is left out of both.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "config/recipe.h"

namespace snug::config {

std::string print_recipe_yaml(const Recipe& recipe);
nlohmann::json recipe_json(const Recipe& recipe);

}  // namespace snug::config
