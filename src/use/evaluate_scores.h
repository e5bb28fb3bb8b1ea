// What a classifier or a reward model gives rows: how many it gets right, and each row's scores.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/language_model.h"
#include "recipe/options/commands.h"

namespace snug::use {

// Of a classifier: loss and accuracy; of a reward model also the mean rewards and their margin.
// With options.scores_file each row's scores are written there.
nlohmann::json evaluate_scores(const recipe::EvaluateOptions& options,
                               const engine::LanguageModel& lm);

// That, for a person.
std::string scores_text(const nlohmann::json& result);

}  // namespace snug::use
