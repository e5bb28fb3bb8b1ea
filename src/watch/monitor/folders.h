// Where runs are: which folder holds one, and which of many was written to last. Folders change
// while they are looked at; what vanishes meanwhile is passed over.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace snug::monitor {

// Seconds since the epoch; 0 where it is not there.
double changed_at(const std::filesystem::path& path);

bool is_run(const std::filesystem::path& folder);
bool is_suite(const std::filesystem::path& folder);

// The run in or below a folder that wrote last; empty where there is none.
std::filesystem::path newest_run(const std::filesystem::path& below);

// OUT/rows/ID/run belongs to the suite in OUT: that folder. Any other run: the run itself.
std::filesystem::path suite_of(const std::filesystem::path& run);

}  // namespace snug::monitor
