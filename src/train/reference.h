// What a preference compares with: the log-probabilities of all answers with the model before
// training, made in one pass before the first step and kept beside the run, whose later parts read
// them again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "core/dist/mesh.h"
#include "data/dataset.h"
#include "engine/run.h"

namespace snug::train {

inline constexpr const char* kReferenceFile = "reference.safetensors";

// Where a run keeps its file.
struct ReferenceFile {
  std::filesystem::path path;
  // Of a run that goes on from a checkpoint: the file to read, since weights are no longer those
  // before. Another than `path` is copied there.
  std::optional<std::filesystem::path> earlier;
};
// The file of the run that a checkpoint is of, which may have been moved aside within it.
std::filesystem::path reference_of(const std::filesystem::path& checkpoint);

// Throws UserError where it is missing.
void check_reference(const std::filesystem::path& checkpoint);

// Adds them to the data set's samples as their column, for all processes, which call this together.
// `after_each` is called after each micro-batch with the number of samples that are done. Returns
// how many answers were computed; 0: they were read. Throws UserError where the file that is there
// is of other data.
int64_t add_reference(engine::Run& run, data::Dataset& dataset, data::BatchSource& train,
                      data::BatchSource& validation, const ReferenceFile& file,
                      const dist::Mesh& mesh, const std::function<void(int64_t)>& after_each);

}  // namespace snug::train
