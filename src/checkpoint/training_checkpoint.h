// Resumable training checkpoints: out_dir/step-000100/ with model.safetensors,
// optimizer.safetensors, state.json and, where updates are delayed, late_weights.safetensors.
// Written under a temporary name, synced, renamed, and renamed back before it is deleted: a folder
// of that name is whole. With them lies the run's record so far.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace snug::checkpoint {

// Everything beside tensors that the next step depends on.
struct TrainingState {
  int64_t step = 0;              // optimizer steps taken
  int64_t epoch = 0;             // data position
  int64_t next_index = 0;        // data position
  int64_t micro_batches = 0;     // run so far
  int64_t tokens = 0;            // real tokens trained on
  int64_t micro_batch_size = 0;  // smaller than the recipe's after a split
  double loss_scale = 1;
  int64_t good_steps = 0;  // of the loss scaler
  uint64_t data_fingerprint = 0;
};

struct TrainingTensors {
  std::vector<optim::NamedTensor> parameters;
  std::vector<optim::NamedTensor> optimizer_states;
  // One update behind: what the next step runs with. Empty where that is `parameters`.
  std::vector<optim::NamedTensor> late_weights;
};

// The run's record in a checkpoint's folder.
inline constexpr const char* kRecordName = "run.json";

// Returns the folder. Throws UserError (full disk, no permission) with nothing half-written.
std::filesystem::path save(const std::filesystem::path& out_dir, const TrainingState& state,
                           const TrainingTensors& tensors, const std::string& run_record);

// Of its files together.
int64_t size_bytes(const std::filesystem::path& folder);

// Deletes checkpoints up to `step` but for the `count` newest of them; warns where it cannot.
void keep_newest(const std::filesystem::path& out_dir, int64_t step, int64_t count);

// The newest whole checkpoint under out_dir.
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& out_dir);

// Moves checkpoints after `step` under out_dir to out_dir/earlier, or earlier-2, … where that is
// taken: they are another run's, or of a run that went another way from there, and must not be
// taken for this one's when it is resumed. Returns the folder, if there were any.
std::optional<std::filesystem::path> set_aside(const std::filesystem::path& out_dir, int64_t step);

TrainingState load_state(const std::filesystem::path& folder);

// Fills the tensors. Throws UserError when one is missing, of another shape or of another type,
// which means that the recipe changed; where updates happen may change.
void load_tensors(const std::filesystem::path& folder, const TrainingTensors& tensors);

// Fills tensors.late_weights, if the run that wrote the checkpoint had any; else leaves them: the
// next step then starts from the newest weights.
void load_late_weights(const std::filesystem::path& folder, const TrainingTensors& tensors);

}  // namespace snug::checkpoint
