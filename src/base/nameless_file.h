// A temporary file without a name in its folder: nothing is left even if the program is killed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace snug {

// Returns a descriptor for reading and writing, which the caller closes; -1 with errno on failure.
int open_nameless_file(const std::filesystem::path& folder);

}  // namespace snug
