// snug demo: downloads a model, generates questions and answers, and gives the finetune command
// that trains on them, which then runs as usual.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "recipe/options/commands.h"

namespace snug::demo {

// The arguments of the run: finetune_full or finetune_lora, the model, the recipe and the user's
// own options. The files need not exist yet.
std::vector<std::string> finetune_words(const recipe::DemoOptions& options);

// Writes the questions for the run.
void make_questions(const recipe::DemoOptions& options);

// Downloads the model, unless the user named one or it exists, and returns its path.
std::string fetch_model(const recipe::DemoOptions& options);

}  // namespace snug::demo
