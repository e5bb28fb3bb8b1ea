// The components of a model that a recipe trains: model.train_parts ("all", "qformer,projection").
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace snug::recipe {

// The components that model.train_parts lists, in its order; none for "all".
std::vector<std::string> part_names(const std::string& choice);

// What is wrong with the list, as one sentence; empty: nothing. Which components a model has is
// checked later (models::Model::parts).
std::string part_names_fault(const std::string& choice);

}  // namespace snug::recipe
