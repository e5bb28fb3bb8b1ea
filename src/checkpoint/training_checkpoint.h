// Resumable training checkpoints: out_dir/step-000100/ with model.safetensors,
// optimizer.safetensors, state.json and, where updates are delayed, late_weights.safetensors.
// Written under a temporary name, synced, renamed, and renamed back before it is deleted: a folder
// of that name is whole. With them lies the run's record so far.
//
// Of several ranks each writes what it holds into files of its own, beside each other in the one
// folder, and an index.json tells what lies where. Any number of ranks reads it, however they cut
// the tensors: each its own pieces.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/piece.h"
#include "dist/group.h"
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
  // By parameter, which part of it this rank holds, where that is not all of it. Its states are of
  // the same part: an element each, or one a block of 8-bit states.
  std::unordered_map<std::string, PieceOf> pieces;
};

// The run's record in a checkpoint's folder, and the TrainingState.
inline constexpr const char* kRecordName = "run.json";
inline constexpr const char* kStateName = "state.json";

// Returns the folder. Throws UserError (full disk, no permission) with nothing half-written.
// With `ranks` called by all of them: each writes its pieces, one of those that hold the same piece
// writes it; state and record are rank 0's. A failure on one is thrown on all. `mesh` is noted in
// the index.
std::filesystem::path save(const std::filesystem::path& out_dir, const TrainingState& state,
                           const TrainingTensors& tensors, const std::string& run_record,
                           dist::Group* ranks = nullptr, const std::string& mesh = "");

// What the tensors of a save take on disk, all ranks' together: to be called by all of them.
int64_t bytes_to_save(const TrainingTensors& tensors, dist::Group* ranks = nullptr);

// Of these, one process or the first of many calls size_bytes, keep_newest and set_aside.

// How many there are under out_dir of steps up to that one.
int64_t count_up_to(const std::filesystem::path& out_dir, int64_t step);

// Of its files together.
int64_t size_bytes(const std::filesystem::path& folder);

// Deletes checkpoints up to `step` but for the `count` newest of them; warns where it cannot.
void keep_newest(const std::filesystem::path& out_dir, int64_t step, int64_t count);

// The newest whole checkpoint under out_dir; warns of those that are not.
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& out_dir);
// The one that rank 0 finds. To be called by all; throws UserError where one does not see it.
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& out_dir,
                                                 dist::Group& ranks);

// Moves checkpoints after `step` under out_dir to out_dir/earlier, or earlier-2, … where that is
// taken: they are another run's, or of a run that went another way from there, and must not be
// taken for this one's when it is resumed. Returns the folder, if there were any.
std::optional<std::filesystem::path> set_aside(const std::filesystem::path& out_dir, int64_t step);

// Throws UserError where the checkpoint is not whole.
TrainingState load_state(const std::filesystem::path& folder);

// Fills the tensors. Throws UserError when one is missing, of another shape or of another type,
// which means that the recipe changed; where updates happen, and how many ranks share them, may
// change. Where ranks cut blocks of 8-bit states otherwise than before, those are rounded once
// more, and a warning says so. With `ranks` called by all of them: a failure on one is thrown on
// all.
void load_tensors(const std::filesystem::path& folder, const TrainingTensors& tensors,
                  dist::Group* ranks = nullptr);

// Fills tensors.late_weights, if the run that wrote the checkpoint had any; else leaves them: the
// next step then starts from the newest weights.
void load_late_weights(const std::filesystem::path& folder, const TrainingTensors& tensors,
                       dist::Group* ranks = nullptr);

}  // namespace snug::checkpoint
