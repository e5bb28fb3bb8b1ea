// What a folder without a model may be instead: a run's folder or one of its checkpoints.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace snug::models {

// The end of an error message: that the folder is a checkpoint, and where what the run trained is,
// each after "; ". Empty if neither is known.
std::string found_of_a_run(const std::filesystem::path& folder);

}  // namespace snug::models
