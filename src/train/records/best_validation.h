// The best validation of a run so far: when the run stops early, and which model it keeps. Part of
// the run's record, so that a resumed run knows it too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "recipe/recipe.h"
#include "report/run_record.h"

namespace snug::train {

// Counts a validation in. True if it is the best so far: one that is equal, has no number, or is of
// the model before training is not. What was the best by another metric counts no more.
bool is_best_yet(report::BestRecord& best, const report::ValidationRecord& validation,
                 recipe::BestMetric metric);

// "validation loss 0.1234", "validation accuracy 81.2 %"
std::string words_on(const report::BestRecord& best);

// best.json, beside a model that was written at its best validation.
void write_best(const std::filesystem::path& folder, const report::BestRecord& best);
// What it says; none: there is no such file.
std::optional<report::BestRecord> read_best(const std::filesystem::path& folder);

// Whether the first is better by the same metric, or there is no second.
bool is_better(const report::BestRecord& best, const report::BestRecord& than);

}  // namespace snug::train
