// A file in a folder that has no name there: nothing is left of it whatever becomes of the program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace snug {

// Its descriptor, to read and write; the caller closes it. -1 where none can be made, with errno
// set.
int open_nameless_file(const std::filesystem::path& folder);

}  // namespace snug
