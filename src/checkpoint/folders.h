// How the folders of checkpoints come and go in out_dir: a folder called step-000100 is there whole
// or not at all. While one is written or deleted it has another name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace snug::checkpoint {

std::string folder_name(int64_t step);
// What the folder of that name is called while it is being written.
std::filesystem::path temporary_name(const std::filesystem::path& folder);

// Removes what a run that was killed has left while it saved or deleted.
void remove_temporaries(const std::filesystem::path& out_dir);

// Gives the temporary folder its name, in place of one that is there.
void put_in_place(const std::filesystem::path& temporary, const std::filesystem::path& folder);

}  // namespace snug::checkpoint
