// The report of a lab run in four forms, all from the same figures.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lab/result.h"

namespace snug::lab {

std::string report_html(
    const LabRun& run);  // one file, no network, for any width, print and dark mode
std::string report_markdown(const LabRun& run);
std::string report_csv(const LabRun& run);  // one line a row; bytes and seconds
std::string report_json(const LabRun& run);

// The terminal's table, no line of it wider; `width` 0: it goes to no terminal. A dry run's is of
// the plans of what would be run.
enum class Shown { Results, PlansOfRuns };
std::string report_text(const LabRun& run, int width, Shown what = Shown::Results);

// Writes report.html, .md, .csv and .json into the run's folder.
void write_reports(const LabRun& run);

// Two runs side by side, row by row, behind what they do not have in common.
size_t rows_in_both(const LabRun& first, const LabRun& second);
std::string compare_text(const LabRun& first, const LabRun& second, int width);
std::string compare_json(const LabRun& first, const LabRun& second);

}  // namespace snug::lab
