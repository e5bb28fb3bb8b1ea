// What is known of each optimizer besides its arithmetic, in one table: its names, arguments and
// defaults, and the properties that checks, plans and suggestions ask for. The defaults are those
// of its class in torch or bitsandbytes, because choosing a class drops the values of another.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace snug::recipe {

// What another program's name for an optimizer stands for here, where a recipe does not say
// otherwise.
struct StandsFor {
  OptimizerName name;
  bool states_on_host = false;
  bool masters_of_16_bit_weights = false;
  std::string_view without_weight_decay = {};  // why optimizer.weight_decay is refused
};

struct OptimizerTraits {
  std::vector<std::string_view> spellings;  // last words of class paths, in lower case
  std::vector<std::string_view> arguments;  // optimizer.<argument> that mean something to it
  OptimizerOptions defaults;
  // States are made of whole rows and columns, so no device can have a part of a matrix.
  bool needs_whole_matrices = false;
  bool has_states_without_momentum = true;
  std::optional<OptimizerName> with_smaller_states = std::nullopt;  // the same but for rounding
  std::optional<StandsFor> stands_for = std::nullopt;
};

const OptimizerTraits& optimizer_traits(OptimizerName name);

// "torch.optim.AdamW", "AdamW", "adamw" -> "adamw". An unknown name comes back as it is.
std::string normalise_optimizer(std::string_view name);
// That class's defaults; plain AdamW's for an unknown name.
OptimizerOptions optimizer_defaults(std::string_view name);
// Whether optimizer.<argument> (lr, betas, momentum, …) means something to this optimizer.
bool optimizer_takes(std::string_view name, std::string_view argument);
bool needs_whole_matrices(const OptimizerOptions& options);
bool has_states(const OptimizerOptions& options);

// Puts what another program's name stands for in its place.
void resolve_optimizer(Recipe& recipe);

}  // namespace snug::recipe
