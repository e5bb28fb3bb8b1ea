// snug demo: from nothing to a fine-tuned model. It fetches a model, makes questions and answers,
// and names the fine-tuning run that learns from them, which then goes its usual way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "recipe/options/commands.h"

namespace snug::demo {

// The run's command without "snug": finetune_full or finetune_lora, the model, the recipe, and what
// the person added. Nothing of it needs to be there yet.
std::vector<std::string> finetune_words(const recipe::DemoOptions& options);

// Writes the questions that the run reads.
void make_questions(const recipe::DemoOptions& options);

// Fetches the model, unless the person named one or it is there.
void fetch_model(const recipe::DemoOptions& options);

}  // namespace snug::demo
