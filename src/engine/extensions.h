// What a caller may add to a recipe: an objective, policies, an optimizer of its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/nn/objective.h"
#include "core/optim/optimizer.h"
#include "engine/exec/policy.h"

namespace snug::engine {

struct Extensions {
  // What training minimises and validation measures; null: cross-entropy as the recipe has it.
  std::shared_ptr<const nn::Objective> objective = nullptr;
  // Each returns a new policy, which the executor calls after those of the recipe's techniques.
  std::vector<std::function<std::shared_ptr<exec::Policy>()>> policies = {};
  optim::MakeOptimizer optimizer = {};  // null: the recipe's
};

}  // namespace snug::engine
