// How the folders of checkpoints come and go in out_dir: a folder called step-000100 is there whole
// or not at all. While one is written or deleted it has another name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace snug::checkpoint {

std::string folder_name(int64_t step);
// What the folder of that name is called while it is being written.
std::filesystem::path temporary_name(const std::filesystem::path& folder);

// Removes what a run that was killed has left while it saved or deleted, but for a checkpoint that
// is whole and only lacks its name, which it gets.
void remove_temporaries(const std::filesystem::path& out_dir);

// All checkpoints in out_dir, newest first.
std::vector<std::filesystem::path> all_checkpoints(const std::filesystem::path& out_dir);

// Moves these of out_dir's files to out_dir/earlier, or earlier-2, … where that is taken, which it
// returns. Until all are there it is called .earlier. Throws UserError.
std::filesystem::path move_aside(const std::filesystem::path& out_dir,
                                 const std::vector<std::filesystem::path>& files);
// Puts back what a process that was killed in move_aside() had moved by then.
void undo_half_a_move(const std::filesystem::path& out_dir);

// Gives the temporary folder its name, in place of one that is there.
void put_in_place(const std::filesystem::path& temporary, const std::filesystem::path& folder);

}  // namespace snug::checkpoint
