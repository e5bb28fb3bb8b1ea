// What a classifier or a reward model gives rows: how many it gets right, and each row's scores.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/language_model.h"
#include "recipe/options/commands.h"

namespace snug::use {

// Of a classifier: loss and accuracy; of a reward model also the mean rewards and their margin.
// With options.scores_file each row's scores are written there.
nlohmann::json evaluate_scores(const recipe::EvaluateOptions& options,
                               const engine::LanguageModel& lm);

// Throws UserError if the file of options.scores_file is there.
void check_scores_file(const recipe::EvaluateOptions& options);
// Writes it, a line each, in the order of their "row".
void write_scores_file(const recipe::EvaluateOptions& options, std::vector<nlohmann::json> rows);

// What is evaluated, also of pairs (evaluate_pairs.h), for a person.
std::string scores_text(const nlohmann::json& result);

}  // namespace snug::use
