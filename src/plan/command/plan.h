// snug plan: what a recipe takes, on any device, before a byte is allocated.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recipe/options/commands.h"
#include "recipe/recipe.h"

namespace snug::plan {

void plan(const recipe::Recipe& recipe, const recipe::PlanOptions& options);

}  // namespace snug::plan
