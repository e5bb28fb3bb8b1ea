// Deals with an earlier run in a run's folder, and with what a killed run left half done. Called by
// the one process that writes there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace snug::train {

// Completes, undoes or removes what a killed run was writing, replacing or moving. Call it before
// anything else in out_dir.
void clear_up_after_kills(const std::filesystem::path& out_dir);
// The same of a run that has ended: a half-written status in live/ goes too, which belongs to no
// process any more.
void clear_up_finished(const std::filesystem::path& out_dir);

// Moves the ranks' logs of an earlier run out of the way before new ones are written, until it is
// known whether that run is resumed.
void put_logs_by(const std::filesystem::path& out_dir);
// Removes them: they are of the run that is resumed in this folder.
void drop_logs_put_by(const std::filesystem::path& out_dir);

// Whether an earlier run left anything that it trained or measured. A run that failed before its
// first step did not.
bool holds_earlier_run(const std::filesystem::path& out_dir);

// Moves the files of an earlier run to out_dir/earlier, or earlier-2, … if that exists, and returns
// that folder. Being killed meanwhile loses nothing. Throws UserError.
// `kept`: a file that the new run reads, which stays.
std::filesystem::path set_run_aside(const std::filesystem::path& out_dir,
                                    const std::filesystem::path& kept = {});

// Whether `checkpoint` is of the run whose files are in out_dir.
bool is_of_run_in(const std::filesystem::path& out_dir, const std::filesystem::path& checkpoint);

}  // namespace snug::train
