// Resumable training checkpoints: out_dir/step-000100/ with model.safetensors,
// optimizer.safetensors, state.json and, where updates are delayed, late_weights.safetensors. A
// folder is written under a temporary name, synced and renamed, and renamed again before it is
// deleted, so that a folder of that name is always complete. It also contains the run's record so
// far.
//
// With several ranks each writes its pieces into its own files in the same folder, and index.json
// says what is where. Any number of ranks can read it, however they split the tensors: each reads
// its own pieces.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/dist/group.h"
#include "core/optim/optimizer.h"
#include "files/checkpoint/piece.h"

namespace snug::checkpoint {

// Everything besides tensors that the next step depends on.
struct TrainingState {
  int64_t step = 0;               // optimizer steps taken
  int64_t epoch = 0;              // data position
  int64_t next_index = 0;         // data position
  int64_t micro_batches = 0;      // run so far
  int64_t tokens = 0;             // real tokens trained on
  int64_t micro_batch_size = 0;   // smaller than the recipe's after a split
  int64_t samples_per_epoch = 0;  // of train.limit_train_batches; 0: all, or none was saved
  double loss_scale = 1;
  int64_t good_steps = 0;  // of the loss scaler
  uint64_t data_fingerprint = 0;
};

struct TrainingTensors {
  std::vector<optim::NamedTensor> parameters;
  std::vector<optim::NamedTensor> optimizer_states;
  // With delayed updates: the weights that the next step uses, one update behind. Empty otherwise.
  std::vector<optim::NamedTensor> late_weights;
  // By parameter: the piece that this rank holds, if not the whole. Its states cover the same
  // piece, with one value per element or per block of 8-bit states.
  std::unordered_map<std::string, PieceOf> pieces;
};

// File names in a checkpoint's folder: the run's record and the TrainingState.
inline constexpr const char* kRecordName = "run.json";
inline constexpr const char* kStateName = "state.json";

// Returns the folder. Throws UserError (full disk, no permission) and leaves nothing half-written.
// With `ranks`, all of them must call it: each writes its pieces, a shared piece is written once,
// and rank 0 writes state and record. A failure on one rank is thrown on all. `mesh` is noted in
// the index.
std::filesystem::path save(const std::filesystem::path& out_dir, const TrainingState& state,
                           const TrainingTensors& tensors, const std::string& run_record,
                           dist::Group* ranks = nullptr, const std::string& mesh = "");

// The bytes on disk of a save's tensors, of all ranks together. All ranks must call it.
int64_t bytes_to_save(const TrainingTensors& tensors, dist::Group* ranks = nullptr);

// size_bytes, keep_newest and set_aside are called by rank 0 only.

// The number of checkpoints under out_dir up to this step.
int64_t count_up_to(const std::filesystem::path& out_dir, int64_t step);

// The size of all its files.
int64_t size_bytes(const std::filesystem::path& folder);

// Deletes checkpoints up to `step` except the `count` newest; warns if it cannot.
void keep_newest(const std::filesystem::path& out_dir, int64_t step, int64_t count);

// The newest complete checkpoint under out_dir; warns of incomplete ones.
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& out_dir);
// The one that rank 0 finds. All ranks must call it; throws UserError if a rank does not see it.
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& out_dir,
                                                 dist::Group& ranks);

// Moves checkpoints after `step` from out_dir to out_dir/earlier, or earlier-2, … if that exists:
// they come from another run, or from a continuation that is abandoned, and this run must not
// resume from them. Returns the folder, if there were any.
std::optional<std::filesystem::path> set_aside(const std::filesystem::path& out_dir, int64_t step);

// Throws UserError if the checkpoint is incomplete.
TrainingState load_state(const std::filesystem::path& folder);

// Fills the tensors. Throws UserError if one is missing or has another shape or type, which means
// that the recipe changed. The place of updates (device or host) and the number of ranks may
// change. If ranks now split blocks of 8-bit states differently, these are rounded once more, with
// a warning. With `ranks`, all of them must call it, and a failure on one is thrown on all.
void load_tensors(const std::filesystem::path& folder, const TrainingTensors& tensors,
                  dist::Group* ranks = nullptr);

// Fills tensors.late_weights if the checkpoint has them; otherwise leaves them, and the next step
// starts from the newest weights.
void load_late_weights(const std::filesystem::path& folder, const TrainingTensors& tensors,
                       dist::Group* ranks = nullptr);

}  // namespace snug::checkpoint
