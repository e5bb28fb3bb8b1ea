// What came with the program. It is found from where the program lies, so that a package may be
// moved: from PREFIX/bin/snug in PREFIX/share/snug, from build/snug in the repository that it was
// built in.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

namespace snug {

// PREFIX of PREFIX/bin/snug, the repository of build/snug. Symbolic links to the program are
// followed. Empty where the kernel does not say.
std::filesystem::path program_prefix();

// Where a file that comes with snug may lie, by its name in the repository (recipes/demo.yaml).
std::vector<std::filesystem::path> shipped_places(const std::filesystem::path& name);

// `name` itself if it is there or is nowhere, else the file of that name that came with the
// program.
std::filesystem::path shipped_file(const std::filesystem::path& name);

}  // namespace snug
