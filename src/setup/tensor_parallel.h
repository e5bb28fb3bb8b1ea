// A model whose layers the ranks of a group share (Shoeybi et al. 2019): each rank has a slice of
// what the family says can be cut (nn::Parameter::cut_dim), and the units compute with slices from
// then on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "config/recipe.h"
#include "dist/group.h"
#include "models/model.h"

namespace snug::setup {

// Among as many ranks, and what divides that, heads of each kind and features can be shared evenly.
int64_t common_shares(models::Model& model);

// Gives each parameter this rank's slice; with a group of one, the whole again. Before adapters are
// added and parameters allocated; `tensor` must outlive the model's use. Throws UserError where the
// model or what the recipe does with it cannot be shared among so many.
void cut_tensors(models::Model& model, const config::Recipe& recipe, dist::Group& tensor);

// The whole tensor of which each rank has the slice `part`, of the parameter's shape: a value, a
// gradient, a state. All ranks of the group get it, and must ask for the same parameters in the
// same order. What is not cut is returned as it is. `part` lies where the group's tensors do.
at::Tensor assemble(const nn::Parameter& parameter, const at::Tensor& part);
// The same of the value, wherever it is kept.
at::Tensor whole_value(const nn::Parameter& parameter);

}  // namespace snug::setup
