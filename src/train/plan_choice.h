// What --fit says beside its choice: why it took what it takes only if it must or may, and what
// would help where nothing fits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "config/recipe.h"
#include "plan/fit.h"

namespace snug::train {

// Sentences, each after a line's end; empty where there is nothing to explain.
// `asked` is the recipe before the search.
std::string choice_reasons(const plan::Fit& fit, const config::Recipe& asked,
                           const plan::DeviceProfile& device);
// Where nothing fits: what comes nearest, and what an option would allow; each after a line's end.
std::string why_none_fits(const plan::Fit& fit, const plan::DeviceProfile& device);

}  // namespace snug::train
