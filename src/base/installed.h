// Finds files that are installed with the program, relative to the program, so that a package may
// be moved: for PREFIX/bin/snug in PREFIX/share/snug, for build/snug in its repository.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

namespace snug {

// PREFIX of PREFIX/bin/snug, the repository of build/snug. Symbolic links to the program are
// followed. Empty if unknown.
std::filesystem::path program_prefix();

// Possible paths of an installed file, by its name in the repository (recipes/demo.yaml).
std::vector<std::filesystem::path> shipped_places(const std::filesystem::path& name);

// `name` itself if it exists or is found nowhere, else the installed file of that name.
std::filesystem::path shipped_file(const std::filesystem::path& name);

}  // namespace snug
