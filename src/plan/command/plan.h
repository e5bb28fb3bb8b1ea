// snug plan: what a recipe takes, on any device, before a byte is allocated. `words`: the command
// line, which a sweep varies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "recipe/options/commands.h"
#include "recipe/recipe.h"

namespace snug::plan {

void plan(const recipe::Recipe& recipe, const recipe::PlanOptions& options,
          const std::vector<std::string>& words);

}  // namespace snug::plan
