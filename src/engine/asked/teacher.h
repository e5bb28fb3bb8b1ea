// What a teacher says of rows: of each target its most likely tokens and their log-probabilities,
// written once by a pass over them and read by every training that learns from it
// (core/nn/objectives/distillation.h).
//
// The file is in safetensors: "documents" (S) int64, a hash of each document's tokens and of which
// of them are learnt; "ends" (S) int64, how many targets there are up to each document's end; and
// "top_k" (targets, 2 K) float32: K ids, most likely first, then their log-probabilities. Rows are
// found by what they say, so that their order, and how they are split, may differ.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "engine/exec/executor.h"
#include "engine/steps/validation.h"

namespace snug::engine {

// The samples of a data set and the batches that are made of them.
struct TaughtSamples {
  const data::SampleStore& samples;
  data::BatchSource& batches;
};

struct TopKFile {
  std::filesystem::path path;
  int64_t top_k = 64;
  // Noted in the file, "model" and what else matters.
  std::map<std::string, std::string> notes;
};

// Writes what the executor's model says of these samples. `options`: its micro-batches, and
// after_each. Returns how many targets it wrote. Throws UserError where a log-probability is
// no number. The vocabulary has at least top_k tokens.
int64_t write_top_k(const TopKFile& file, const std::vector<TaughtSamples>& all,
                    exec::Executor& executor, const ValidationOptions& options);

// What a file notes of the samples of a data set: how they were made.
std::map<std::string, std::string> notes_on(const data::Dataset& dataset,
                                            std::optional<bool> mask_prompt);

// Whether this is a file of that kind, rather than a model.
bool is_top_k_file(const std::filesystem::path& path);

// Adds the first `top_k` tokens of the file to the samples as their column; ids that a model with
// `vocabulary` tokens has not belong to all others. Throws UserError where the file is damaged, has
// fewer tokens of each target, or lacks a sample.
// `mask_prompt`: as the recipe has it.
void add_teacher(data::Dataset& dataset, const std::filesystem::path& file, int64_t top_k,
                 int64_t vocabulary, std::optional<bool> mask_prompt);
// Numbers that nobody said, for synthetic samples.
void make_up_teacher(data::Dataset& dataset, int64_t top_k, int64_t vocabulary);

}  // namespace snug::engine
