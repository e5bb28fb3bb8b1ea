// The table of optimizers: names, arguments, defaults, and the properties that checks, plans and
// suggestions need. The defaults are those of the class in torch or bitsandbytes, because choosing
// a class drops the values of another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace snug::recipe {

// The settings that another program's optimizer name stands for, unless the recipe sets them.
struct StandsFor {
  OptimizerName name;
  bool states_on_host = false;
  bool masters_of_16_bit_weights = false;
  std::string_view without_weight_decay = {};  // why optimizer.weight_decay is refused
};

struct OptimizerTraits {
  std::vector<std::string_view> spellings;  // last words of class paths, in lower case
  std::vector<std::string_view> arguments;  // optimizer.<argument> that it takes
  OptimizerOptions defaults;
  // The states are sums over whole rows and columns, so matrices cannot be sharded.
  bool needs_whole_matrices = false;
  bool has_states_without_momentum = true;
  std::optional<OptimizerName> with_smaller_states = std::nullopt;  // equal up to rounding
  std::optional<StandsFor> stands_for = std::nullopt;
};

const OptimizerTraits& optimizer_traits(OptimizerName name);

// "torch.optim.AdamW", "AdamW", "adamw" -> "adamw". Unknown names are returned unchanged.
std::string normalise_optimizer(std::string_view name);
// The defaults of the class; those of AdamW for an unknown name.
OptimizerOptions optimizer_defaults(std::string_view name);
// Whether this optimizer takes optimizer.<argument> (lr, betas, momentum, …).
bool optimizer_takes(std::string_view name, std::string_view argument);
bool needs_whole_matrices(const OptimizerOptions& options);
bool has_states(const OptimizerOptions& options);

// Replaces another program's optimizer name by the settings that it stands for.
void resolve_optimizer(Recipe& recipe);

}  // namespace snug::recipe
