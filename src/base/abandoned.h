// What processes that were killed left of files that they were writing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace snug {

// Deletes the temporary files of this one file: NAME.tmp-PID of processes that no longer exist on
// this machine. Call it where no other machine can be writing the file. Ignores those that cannot
// be deleted.
void remove_abandoned_versions(const std::filesystem::path& file);

}  // namespace snug
