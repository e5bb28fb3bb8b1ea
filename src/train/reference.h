// What a preference compares with: the log-probabilities of all answers with the model before
// training, made in one pass before the first step and kept beside the run, whose later parts read
// them again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "core/dist/mesh.h"
#include "data/dataset.h"

namespace snug::train {

inline constexpr const char* kReferenceFile = "reference.safetensors";

// Where a run keeps its file.
struct ReferenceFile {
  std::filesystem::path path;
  // Of a run that goes on from a checkpoint: the file to read, since weights are no longer those
  // before. Another than `path` is copied there.
  std::optional<std::filesystem::path> earlier;
};
// A file of the run that a checkpoint is of, which may have been moved aside within it.
std::filesystem::path file_of_run(const std::filesystem::path& checkpoint, const char* name);

// Throws UserError where it is missing.
void check_reference(const std::filesystem::path& checkpoint);

// Of a data set's samples and their others, in the order of their documents.
using ReferenceNumbers = std::vector<std::vector<float>>;

// What engine::log_probs_of_documents() returns of these samples.
using LogProbs = std::function<std::vector<double>(data::BatchSource&, int64_t num_samples,
                                                   const std::function<void(int64_t)>& after_each)>;

// `after_each` is called after each micro-batch with the number of samples that are done.
ReferenceNumbers compute_reference(data::Dataset& dataset, data::BatchSource& train,
                                   data::BatchSource& validation, const LogProbs& log_probs,
                                   const std::function<void(int64_t)>& after_each);
// Throws UserError where the file is of other data.
ReferenceNumbers read_reference(const std::filesystem::path& file, data::Dataset& dataset,
                                data::BatchSource& train, data::BatchSource& validation);
// Adds them to the data set's samples as their column, for all processes, which call this together,
// and keeps them in `path` unless they are `earlier`, the file that was read.
void keep_reference(ReferenceNumbers numbers, data::Dataset& dataset, data::BatchSource& train,
                    data::BatchSource& validation, const ReferenceFile& file,
                    const dist::Mesh& mesh);

}  // namespace snug::train
