// An adapter folded into its base: the weights that the base with the adapter computes with, as a
// model that needs no adapter. One tensor is in memory at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "checkpoint/adapter.h"
#include "models/family.h"
#include "setup/export.h"

namespace snug::setup {

// Adds the adapter of one module to its weight in place. `weight` is (out, in) in float32.
void fold_in(const at::Tensor& weight, const checkpoint::ModuleAdapter& adapter);

// Whether the merged model has a head of its own where the base's is its embedding: an adapter
// changes the head only. See models::model_with_own_head.
bool parts_head(const models::Checkpoint& base, const checkpoint::Adapter& adapter);

// Reads parameters of the merged model as `type`. What is merged passes through float32 and is
// rounded once; weights that are marked so go through their 4 or 8 bits first (quantize_weights).
// Borrows both.
ParameterReader merged_reader(const models::Checkpoint& base, const checkpoint::Adapter& adapter,
                              at::ScalarType type);

}  // namespace snug::setup
