// Which weights of a model train: all of them, or low-rank adapters beside its linear layers (LoRA)
// while everything else is frozen, as a recipe says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/peft_adapter.h"
#include "config/recipe.h"
#include "models/model.h"
#include "nn/linear.h"
#include "setup/export.h"

namespace snug::setup {

// All linear layers of a model, in order.
std::vector<nn::Linear*> linears_of(models::Model& model);

// What a recipe asks for in PEFT's words: LitGPT's switches as names of modules. Throws UserError
// where a name matches no layer.
checkpoint::AdapterConfig adapter_config(models::Model& model, const config::LoraOptions& options);

// With LoRA: freezes the model and puts an adapter beside each layer that the recipe names. Does
// nothing without. Before parameters are allocated; again is as once. Throws as above.
void add_adapters(models::Model& model, const config::LoraOptions& options);

// The starting values of a unit's adapters, when its base weights are there: B is zero, so that
// training starts from the base model. PiSSA changes the base weights instead; `read` gives those
// as they are on disk, float32 on the host. `deviation` is that of random weights.
void initialize_adapters(nn::Unit& unit, const config::LoraOptions& options, uint64_t seed,
                         double deviation, const ParameterReader& read);
// Whether starting values need the base weights.
bool start_from_weights(const config::LoraOptions& options);

// What an adapter's file has that is to go with the base model as it is on disk: the adapters, and
// what trains beside them. Tensors are of this type, on meta.
checkpoint::Adapter adapter_shapes(models::Model& model, const config::LoraOptions& options,
                                   at::ScalarType type);

// Its values. `trained` gives the whole value of a parameter that trains, asked for in the order of
// names, which hardly leaves a unit and comes back; `base` one as it is on disk, float32 on the
// host. On the device adapters are of `device_type`.
checkpoint::AdapterValues adapter_values(models::Model& model, const config::LoraOptions& options,
                                         at::ScalarType device_type, const ParameterReader& trained,
                                         const ParameterReader& base);

// QLoRA (Dettmers et al. 2023): the weights of all linear layers but the head in 4 or 8 bits, if
// the recipe says so. Before parameters are allocated. `whole`: units that train and stay as they
// are.
void quantize_weights(models::Model& model, const config::Recipe& recipe,
                      const std::vector<nn::Unit*>& whole = {});

// Leaves the base model.
void remove_adapters(models::Model& model);

struct ParameterCount {
  int64_t total = 0;  // adapters included
  int64_t trained = 0;
};
ParameterCount count_parameters(models::Model& model);

}  // namespace snug::setup
