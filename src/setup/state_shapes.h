// What flows between the stages of a pipeline, before it does.
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

// A function that gives the state that enters each place of the layout for a batch, on meta: a twin
// of the model runs there, whose weights take no memory. It is made at the first call, and counts
// in no plan. `model` must outlive it.
std::function<std::vector<nn::State>(const exec::MicroBatch&)> state_shapes(
    const models::Model& model, const config::Recipe& recipe, const StageLayout& layout,
    const dist::Mesh& mesh);

}  // namespace snug::setup
