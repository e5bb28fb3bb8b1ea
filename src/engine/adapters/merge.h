// Merges an adapter into its base model. One tensor is in memory at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "engine/export/export.h"
#include "files/checkpoint/adapters/adapter.h"
#include "models/family.h"

namespace snug::engine {

// Adds a module's adapter to its weight in place. `weight` is (out, in) in float32.
void fold_in(const at::Tensor& weight, const checkpoint::ModuleAdapter& adapter);

// Whether merging unties the head: the base's head is its embedding, and the adapter changes only
// the head. See models::model_with_own_head.
bool parts_head(const models::Checkpoint& base, const checkpoint::Adapter& adapter);

// The weights beside the adapter that differ from the base's, by parameter; a tied head under its
// own name.
std::map<std::string, at::Tensor> changed_base_weights(const models::Checkpoint& base,
                                                       const checkpoint::Adapter& adapter);

// Reads parameters of the merged model as `type`. Merging is done in float32 and rounded once;
// weights marked by quantize_weights() are first quantized and dequantized, as in training. Keeps
// references to both arguments.
ParameterReader merged_reader(const models::Checkpoint& base, const checkpoint::Adapter& adapter,
                              at::ScalarType type);

}  // namespace snug::engine
