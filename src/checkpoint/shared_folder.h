// Whether the ranks of a run, on whatever machines, see the same folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace snug::checkpoint {

// Sixteen random digits.
std::string random_id();

// Rank 0 puts a file of a name that nothing else has into the folder …
std::filesystem::path leave_mark(const std::filesystem::path& folder, const std::string& id);
// … and the others look for it, for a while: a network file system may show it late. Throws
// UserError where it does not.
void wait_for_mark(const std::filesystem::path& folder, const std::string& id);

}  // namespace snug::checkpoint
