// Models that are asked about the rows before training: a teacher and what answers are compared
// with, before the model that is trained takes memory, or that one as it is then.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "core/dist/world.h"
#include "data/dataset.h"
#include "engine/run.h"
#include "recipe/recipe.h"
#include "text/tokenizer/tokenizer.h"
#include "train/records/run_log.h"
#include "train/reference.h"

namespace snug::train {

inline constexpr const char* kTeacherFile = "teacher.safetensors";

// The rows and who asks about them.
struct AskedRows {
  const recipe::Recipe& recipe;
  data::Dataset& dataset;
  data::BatchSource &train, &validation;
  dist::World& world;
  at::Device device;
  const tokenizer::Tokenizer* tokenizer;  // that made the samples; null: they are random
  int64_t vocabulary;                     // of the model that is trained
  RunLog& log;
  std::function<void()> check_stop;  // throws where somebody wants to stop; by all processes
  std::filesystem::path resumes;     // the checkpoint; empty: the run begins
};

// Throws UserError where the recipe has no teacher though its rows are no random ones.
void check_has_teacher(const recipe::Recipe& recipe);

// Adds the teacher's words to the samples. Where it is a model they are written to out_dir/live,
// and this is their file, to be renamed kTeacherFile once out_dir is this run's; else empty.
std::filesystem::path learn_from_teacher(const AskedRows& rows);

// Of objective.reference.
ReferenceNumbers ask_reference(const AskedRows& rows);
// Of the model that is trained.
ReferenceNumbers ask_before_training(const AskedRows& rows, engine::Run& run);

}  // namespace snug::train
