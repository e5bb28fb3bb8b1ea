// snug plan: what a recipe takes, on any device, before a byte is allocated.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/commands.h"
#include "config/recipe.h"

namespace snug::train {

void plan(const config::Recipe& recipe, const config::PlanOptions& options);

}  // namespace snug::train
