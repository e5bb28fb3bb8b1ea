// Fine-tuning, full or with adapters, from a recipe to a trained model on disk.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "recipe/recipe.h"

namespace snug::train {

// Runs the recipe. Writes into recipe.out_dir: run.json, metrics.csv, report.html, checkpoints, and
// final/, a Hugging Face directory. run.json is written even if the run fails. Throws UserError,
// OutOfMemory (with suggestions) or InternalError.
void finetune(const recipe::Recipe& recipe, const std::string& command);

}  // namespace snug::train
