// Adds LoRA adapters to a model as a recipe says, freezes the rest, initializes and quantizes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/nn/linear.h"
#include "engine/export/export.h"
#include "files/checkpoint/adapters/peft_adapter.h"
#include "models/model.h"
#include "recipe/recipe.h"

namespace snug::engine {

// All linear layers of a model, in order.
std::vector<nn::Linear*> linears_of(models::Model& model);

// Those that may have adapters: not a head that scores documents.
std::vector<nn::Linear*> adaptable_linears(models::Model& model);

// The recipe's adapter as a PEFT configuration, with LitGPT's switches as module names. Throws
// UserError if a name matches no layer.
checkpoint::AdapterConfig adapter_config(models::Model& model, const recipe::LoraOptions& options);

// With LoRA: freezes the model but for a head that scores documents, and adds an adapter to each
// layer that the recipe names; without, does nothing. Call before parameters are allocated; calling
// it twice does no harm. Throws as above.
void add_adapters(models::Model& model, const recipe::LoraOptions& options);

// Initializes a unit's adapters; its base weights must be loaded. B is zero, so that training
// starts from the base model; PiSSA changes the base weights instead. `read` returns base weights
// as on disk, in float32 on the host. `deviation`: standard deviation of random weights.
void initialize_adapters(nn::Unit& unit, const recipe::LoraOptions& options, uint64_t seed,
                         double deviation, const ParameterReader& read);
// Whether initialization needs the base weights (PiSSA).
bool start_from_weights(const recipe::LoraOptions& options);

// The contents of an adapter file for the base model as it is on disk: adapters, and base
// parameters that train beside them. Tensors are on meta, in this type.
checkpoint::Adapter adapter_shapes(models::Model& model, const recipe::LoraOptions& options,
                                   at::ScalarType type);

// The values for that file. `trained` returns the unsplit value of a trained parameter and is
// called in the order of names, which rarely returns to an earlier unit; `base` returns a base
// weight as on disk, in float32 on the host. `device_type`: the adapters' type on the device.
checkpoint::AdapterValues adapter_values(models::Model& model, const recipe::LoraOptions& options,
                                         at::ScalarType device_type, const ParameterReader& trained,
                                         const ParameterReader& base);

// QLoRA (Dettmers et al. 2023): quantizes the weights of all linear layers but the head to 4 or 8
// bits, if the recipe says so, but for those that a quantized checkpoint keeps as numbers. Call
// before parameters are allocated. `whole`: units that train in full and are not quantized.
void quantize_weights(models::Model& model, const recipe::Recipe& recipe,
                      const std::vector<nn::Unit*>& whole = {});

// Weights that `folder` has in 4 or 8 bits stay so beside adapters, unless the recipe gives
// quantize: sets it, and says so.
void resolve_quantize(recipe::Recipe& recipe, const std::filesystem::path& folder);

// Experts whose weights files have in one tensor, which PEFT adapts as one.
std::vector<checkpoint::ExpertStack> expert_stacks(models::Model& model);

// Removes all adapters, which leaves the base model.
void remove_adapters(models::Model& model);

struct ParameterCount {
  int64_t total = 0;  // adapters included
  int64_t trained = 0;
};
ParameterCount count_parameters(models::Model& model);

}  // namespace snug::engine
