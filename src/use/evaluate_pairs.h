// Pairs of a better and a worse answer, as the objective that learns from them sees them: loss,
// rewards, and how often the better one is preferred.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "engine/language_model.h"
#include "recipe/options/commands.h"

namespace snug::use {

// The figures that training has of held-out pairs. What dpo, ipo and hinge compare with is the
// adapter's base. With options.scores_file the log-probabilities of each pair's answers are written
// there. Throws UserError where there is no base to compare with.
nlohmann::json evaluate_pairs(const recipe::EvaluateOptions& options,
                              const engine::LanguageModel& lm);

}  // namespace snug::use
