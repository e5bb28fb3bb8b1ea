// Tensor parallelism (Shoeybi et al. 2019): each rank of a group has a slice of every parameter
// that the family splits (models::Model::split), and units compute with slices. Expert parallelism
// (Lepikhin et al. 2021): each rank of a group has some of the experts of every block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "core/dist/mesh.h"
#include "models/model.h"
#include "recipe/recipe.h"

namespace snug::engine {

// The largest number of ranks that can share heads of each kind and features evenly; its divisors
// can too.
int64_t common_shares(models::Model& model);

// Gives each parameter this rank's slice along the mesh's tensor and expert axes; axes of one rank
// undo it. Call before adapters are added and parameters allocated; `mesh` must outlive the model's
// use. Throws UserError if the model or the recipe does not allow these numbers of ranks.
void cut_tensors(models::Model& model, const recipe::Recipe& recipe, const dist::Mesh& mesh);

// Gathers a whole tensor (a value, gradient or optimizer state) from the ranks' slices `part`,
// which have the parameter's shape. All ranks of the group get it and must call this for the same
// parameters in the same order. A tensor that is not split is returned as it is. `part` must be on
// the group's device.
at::Tensor assemble(const nn::Parameter& parameter, const at::Tensor& part);
// The same for the parameter's kept() value.
at::Tensor whole_value(const nn::Parameter& parameter);

}  // namespace snug::engine
