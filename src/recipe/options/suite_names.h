// Where the lab's suites are found: named when the lab runs one, and offered by shell completion.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace snug::recipe {

// Those of $SNUG_SUITES, of recipes/lab here, and those that came with the program; of two with the
// same name the first. In the order of their names.
std::vector<std::filesystem::path> suite_files();
// The same files' names, as snug lab takes them.
std::vector<std::string> suite_names();

}  // namespace snug::recipe
