// A run and a full disk: checks before the first step that there is room for what the run will
// write, and saves the trained model even if the disk is full at the end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/dist/group.h"
#include "recipe/recipe.h"

namespace snug::train {

// What a run will write, as known before its first step.
struct DiskNeed {
  int64_t model_bytes = 0;  // of the trained model or adapter; 0: none
  int64_t checkpoint_bytes = 0;
  int64_t num_checkpoints = 0;  // that will be written
  int64_t num_there = 0;        // existing ones, which count among those that are kept
  std::optional<int64_t> keep;  // empty: all
  bool keeps_best = false;      // the model is written whenever it is the best so far
};

// How many checkpoints a run will write from `step` to its last one.
int64_t checkpoints_to_write(const recipe::Recipe& recipe, int64_t step, int64_t last_step);

// The largest number of new checkpoints at one time: those kept, and one that is being written.
int64_t most_checkpoints(const DiskNeed& need);

// The most that the run adds to the disk.
int64_t most_bytes(const DiskNeed& need);

// Whether one more checkpoint beside all that is little: a tenth of what is free, or less.
bool has_ample_room(const DiskNeed& need, int64_t free_bytes);

// Throws UserError if not even the model fits. Returns a warning; empty: none.
std::string check_room(const DiskNeed& need, int64_t free_bytes, const std::string& out_dir);

// The last write of a run. If the disk is full, the user at a terminal is asked for another folder;
// otherwise the same folder is tried again for a while.
struct LastWrite {
  std::filesystem::path folder;
  // Called on all ranks; a UserError of one is thrown on all.
  std::function<void(const std::filesystem::path& folder)> write;
  dist::Group* ranks = nullptr;  // null: this process alone

  // The following are called only on rank 0.
  std::function<void(const std::string& text)> say;
  // A sentence on where the weights are if they are not written now.
  std::function<std::string()> what_remains;
  // Returns the user's answer; empty at the end of input or if the user wants to stop. Not set:
  // there is no terminal.
  std::function<std::optional<std::string>(const std::string& question)> ask;
  // False if the user wants to stop.
  std::function<bool(double seconds)> wait;
  double interval_seconds = 10;
  double patience_seconds = 600;
};

// Returns the folder that was written. Throws the last try's error with what_remains(), or
// Interrupted if the user gave up.
std::filesystem::path write_at_last(const LastWrite& wish);

// A line from the terminal; InterruptGuard handles Ctrl-C meanwhile.
bool has_terminal();
std::optional<std::string> ask_at_terminal(const std::string& question);
bool wait_for_seconds(double seconds);

// Ctrl-C stops a run after the current step, so that nothing is lost, or before the first one after
// what it does then; a second one kills it.
// Handles SIGINT and SIGTERM while it lives, and SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU, which stop
// it too and never kill it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool requested();
};

}  // namespace snug::train
