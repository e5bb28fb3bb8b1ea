// The trained model is what a run was for, so a disk that is full at the end does not end the run
// at once: a person at a terminal is asked for another folder, and without one the same folder is
// tried again for a while.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/dist/group.h"

namespace snug::train {

struct LastWrite {
  std::filesystem::path folder;
  // Called by all ranks; a UserError of one is thrown on all.
  std::function<void(const std::filesystem::path& folder)> write;
  dist::Group* ranks = nullptr;  // null: this process alone

  // All of it on rank 0:
  std::function<void(const std::string& text)> say;
  // What becomes of the weights if they are not written now, a sentence.
  std::function<std::string()> what_remains;
  // The line that a person answers with; none at the end of the input or where it is to stop. Empty
  // function: there is nobody to ask.
  std::function<std::optional<std::string>(const std::string& question)> ask;
  // False where a person wants to stop meanwhile.
  std::function<bool(double seconds)> wait;
  double interval_seconds = 10;
  double patience_seconds = 600;
};

// Returns the folder that it was written to. Throws what the last try threw and what remains, or
// Interrupted where a person gave up.
std::filesystem::path write_at_last(const LastWrite& wish);

// A line of the terminal's, while Ctrl-C is listened to (train/interrupt.h); none where standard
// input or error is no terminal.
bool has_terminal();
std::optional<std::string> ask_at_terminal(const std::string& question);
bool wait_for_seconds(double seconds);

}  // namespace snug::train
