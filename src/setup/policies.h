// A recipe's techniques as policies, in the order in which they nest.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "config/recipe.h"
#include "exec/policies/sharding.h"

namespace snug::setup {

struct Engine;

// Of the engine's units, parameters and optimizer, which must be there already. `sharding` is one
// of them, or null.
std::vector<std::unique_ptr<exec::Policy>> make_policies(const config::Recipe& recipe,
                                                         Engine& engine,
                                                         std::unique_ptr<exec::Sharding> sharding);

}  // namespace snug::setup
