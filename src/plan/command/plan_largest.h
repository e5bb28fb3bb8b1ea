// snug plan --largest: how large a model of the recipe's kind fits the device, and how large on
// more devices. Heads, width, layers and the MLP grow together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "plan/command/planned.h"

namespace snug::plan {

struct ModelShape {
  int64_t heads = 0, layers = 0;
};

// The config of a model of this shape: hidden_size, intermediate_size and key-value heads in the
// proportion of the heads, lists with an entry for each layer going on as they begin. Throws
// UserError for a config that does not say these by its usual keys.
nlohmann::json resized_config(const nlohmann::json& config, const ModelShape& shape);

// Prints it. `p` is the recipe's own plan. Throws OutOfMemory where not even a model of the fewest
// heads and one layer fits.
void plan_largest(const Planned& p, bool as_json);

}  // namespace snug::plan
