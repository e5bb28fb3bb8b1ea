// The parts of a model that a recipe names in model.train_parts: "all", or "qformer,projection".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace snug::recipe {

// The words of the list, in its order; none for "all".
std::vector<std::string> part_names(const std::string& choice);

// What is wrong with it, as one sentence; empty: nothing. Which of the parts a model has, it says
// itself (models::Model::parts).
std::string part_names_fault(const std::string& choice);

}  // namespace snug::recipe
