// Ordinary runs side by side, from what each left in its run.json: how they ended, loss, speed,
// memory by category, and where their recipes differ.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/run_record.h"

namespace snug::lab {

struct NamedRun {
  std::string name;  // as it was asked for
  report::RunRecord record;
};

// The run.json that `path` is or holds; empty where there is none.
std::filesystem::path run_record_in(const std::filesystem::path& path);

// Columns are runs; a figure that no run has is left out. Changes are against the first run.
std::string compare_runs_text(const std::vector<NamedRun>& runs);
std::string compare_runs_json(const std::vector<NamedRun>& runs);

}  // namespace snug::lab
