// An adapter that trains on: its folder gives rank, scaling, layers and the weights to begin with.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/nn/unit.h"
#include "files/checkpoint/adapters/adapter.h"
#include "models/family.h"
#include "recipe/recipe.h"

namespace snug::engine {

// Where the recipe's model is the folder of an adapter, that adapter trains on, and the model is
// its base. Where an adapter trains on, the recipe says its rank and scaling afterwards. Throws
// UserError if the recipe gives others, trains all weights, or the folder holds no adapter of
// PEFT's form that could train.
void resolve_adapter(recipe::Recipe& recipe);

// Its configuration. Throws UserError as above.
checkpoint::AdapterConfig started_config(const recipe::LoraOptions& options);

// Throws UserError if the adapter is for another model than this base, brings weights of the base
// that would not train, or has other layers than the recipe was given. Call before weights are cut
// for several devices.
void check_started(const recipe::Recipe& recipe, const models::Checkpoint& base);

// Its values, those of a head that scores documents too.
checkpoint::Adapter read_started(const recipe::LoraOptions& options, models::Model& base);

// Writes the values into a unit that has the adapters.
void write_started(const checkpoint::Adapter& values, nn::Unit& unit);

}  // namespace snug::engine
