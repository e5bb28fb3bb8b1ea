// What a recipe's training minimises, over a model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/dist/mesh.h"
#include "core/nn/objective.h"
#include "models/model.h"
#include "recipe/recipe.h"

namespace snug::engine {

// Throws UserError where the model cannot learn what the recipe's objective asks for.
void check_objective(const models::Model& model, const recipe::Recipe& recipe);

// Whether the tokens with which both answers of a pair begin are computed once. They are not where
// a row's memory or its place depends on the document it stands in.
bool shares_prompts(const models::Model& model, const recipe::Recipe& recipe);

std::shared_ptr<const nn::Objective> training_objective(const models::Model& model,
                                                        const recipe::Recipe& recipe,
                                                        const dist::Mesh& mesh);
// Of held-out samples: without what training adds, such as smoothed labels.
std::shared_ptr<const nn::Objective> validation_objective(const recipe::Recipe& recipe);

// Whether it compares with the log-probabilities of the model before training.
bool needs_reference(const nn::Objective& objective);

}  // namespace snug::engine
