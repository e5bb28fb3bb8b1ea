// Shapes of the states that pipeline stages exchange.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "core/dist/mesh.h"
#include "engine/exec/executor.h"
#include "engine/parallel/stages.h"
#include "models/model.h"
#include "recipe/recipe.h"

namespace snug::engine {

// Returns a function that computes the input state of each place for a batch, on meta, by running a
// copy of the model whose weights take no memory. The copy is made at the first call and counts in
// no plan. `model` must outlive the function.
std::function<std::vector<nn::State>(const exec::MicroBatch&)> state_shapes(
    const models::Model& model, const recipe::Recipe& recipe, const StageLayout& layout,
    const dist::Mesh& mesh);

}  // namespace snug::engine
