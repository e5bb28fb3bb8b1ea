// What a model says of rows, kept for another one that learns from it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "engine/language_model.h"
#include "recipe/options/commands.h"

namespace snug::use {

// Writes options.teacher_file (engine/asked/teacher.h) of all rows of the split. Returns what was
// written.
nlohmann::json save_top_k(const recipe::EvaluateOptions& options, const engine::LanguageModel& lm);

}  // namespace snug::use
