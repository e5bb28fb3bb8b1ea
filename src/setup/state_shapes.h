// Shapes of the states that pipeline stages exchange.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "config/recipe.h"
#include "dist/mesh.h"
#include "exec/executor.h"
#include "models/model.h"
#include "setup/stages.h"

namespace snug::setup {

// Returns a function that computes the input state of each place for a batch, on meta, by running a
// copy of the model whose weights take no memory. The copy is made at the first call and counts in
// no plan. `model` must outlive the function.
std::function<std::vector<nn::State>(const exec::MicroBatch&)> state_shapes(
    const models::Model& model, const config::Recipe& recipe, const StageLayout& layout,
    const dist::Mesh& mesh);

}  // namespace snug::setup
