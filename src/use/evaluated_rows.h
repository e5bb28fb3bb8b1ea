// The rows that a command runs through a model without training it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/dataset.h"
#include "data/sample_store.h"
#include "engine/language_model.h"
#include "recipe/options/commands.h"

namespace snug::use {

// Prompts are those of the model's training, where it is known.
data::DatasetOptions evaluated_options(const recipe::EvaluateOptions& options,
                                       const engine::LanguageModel& lm);
data::Dataset open_evaluated(const data::DatasetOptions& options, const engine::LanguageModel& lm);

// Throws UserError if a token is not in the model's embedding.
void check_ids(const data::SampleStore& samples, const engine::LanguageModel& lm);

}  // namespace snug::use
