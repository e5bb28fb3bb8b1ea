// What one recipe says otherwise than another, as text that another process can take over.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "recipe/recipe.h"

namespace snug::recipe {

// Keys whose values differ, with those of `to`.
std::map<std::string, std::string> differences(Recipe from, Recipe to);
// Gives `recipe` such values. Throws InternalError for one that its row does not take.
void apply_differences(Recipe& recipe, const std::map<std::string, std::string>& values);

}  // namespace snug::recipe
