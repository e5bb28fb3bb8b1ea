// Creates, replaces and deletes checkpoint folders in out_dir. A folder named step-000100 is always
// complete: while it is written or deleted it has another name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace snug::checkpoint {

std::string folder_name(int64_t step);
// The folder's name while it is being written.
std::filesystem::path temporary_name(const std::filesystem::path& folder);

// Removes what a killed run left behind while saving or deleting. A complete checkpoint that was
// not yet renamed gets its name.
void remove_temporaries(const std::filesystem::path& out_dir);

// All checkpoints in out_dir, newest first.
std::vector<std::filesystem::path> all_checkpoints(const std::filesystem::path& out_dir);

// Moves these files of out_dir to out_dir/earlier, or earlier-2, … if that exists, and returns that
// folder. It is named .earlier until all files are moved. Throws UserError.
std::filesystem::path move_aside(const std::filesystem::path& out_dir,
                                 const std::vector<std::filesystem::path>& files);
// Undoes an incomplete move_aside() of a process that was killed.
void undo_half_a_move(const std::filesystem::path& out_dir);

// Renames the temporary folder to its final name, replacing an existing one.
void put_in_place(const std::filesystem::path& temporary, const std::filesystem::path& folder);

// Sixteen random hexadecimal digits.
std::string random_id();

// To check that all ranks, on any machine, see the same folder: rank 0 writes a file with a unique
// name into it …
std::filesystem::path leave_mark(const std::filesystem::path& folder, const std::string& id);
// … and the other ranks wait for it for a while, since a network file system may show it late.
// Throws UserError if it does not appear.
void wait_for_mark(const std::filesystem::path& folder, const std::string& id);

}  // namespace snug::checkpoint
