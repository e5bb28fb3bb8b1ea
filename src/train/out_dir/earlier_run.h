// A run's folder may hold an earlier run, and what a run that was killed left half done. By the one
// process that writes there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace snug::train {

// Before anything is looked for in out_dir: what a killed run had begun to write, to replace or to
// move aside is ended, taken back or removed.
void clear_up_after_kills(const std::filesystem::path& out_dir);

// Before the ranks' logs are begun, which replaces those of an earlier run: keeps them until it is
// known whose they are.
void put_logs_by(const std::filesystem::path& out_dir);
// They are of the run that goes on in this folder.
void drop_logs_put_by(const std::filesystem::path& out_dir);

// Whether a run has left there anything that it trained or measured. A run that failed before its
// first step has not.
bool holds_earlier_run(const std::filesystem::path& out_dir);

// Moves all that an earlier run left to out_dir/earlier, or earlier-2, … where that is taken, and
// returns it. A process that is killed meanwhile loses nothing. Throws UserError.
std::filesystem::path set_run_aside(const std::filesystem::path& out_dir);

// Whether the run of this checkpoint is the one whose files lie in out_dir.
bool is_of_run_in(const std::filesystem::path& out_dir, const std::filesystem::path& checkpoint);

}  // namespace snug::train
