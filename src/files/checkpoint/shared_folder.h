// Checks that all ranks of a run, on any machine, see the same folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace snug::checkpoint {

// Sixteen random digits.
std::string random_id();

// Rank 0 writes a file with a unique name into the folder …
std::filesystem::path leave_mark(const std::filesystem::path& folder, const std::string& id);
// … and the other ranks wait for it for a while, since a network file system may show it late.
// Throws UserError if it does not appear.
void wait_for_mark(const std::filesystem::path& folder, const std::string& id);

}  // namespace snug::checkpoint
