// What --fit says beside its choice: why it took what it takes only if it must or may, and what
// would help where nothing fits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/fit.h"
#include "recipe/recipe.h"

namespace snug::plan {

// Sentences, each after a line's end; empty where there is nothing to explain.
// `asked` is the recipe before the search.
std::string choice_reasons(const plan::Fit& fit, const recipe::Recipe& asked,
                           const plan::DeviceProfile& device);
// Where nothing fits: what comes nearest, and what an option would allow; each after a line's end.
std::string why_none_fits(const plan::Fit& fit, const plan::DeviceProfile& device);

}  // namespace snug::plan
