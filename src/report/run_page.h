// report.html: one self-contained page a run, for people who would rather look than read. Loss,
// throughput and memory by category and phase as inline SVG; no script, nothing fetched, light and
// dark.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "report/run_record.h"

namespace snug::report {

// Well-formed as XML too, whatever the strings in `record` hold.
std::string report_html(const RunRecord& record);
void write_report_html(const RunRecord& record, const std::filesystem::path& path);

// The single charts, as complete SVG documents; empty when there is nothing to draw.
std::string loss_svg(const RunRecord& record);
std::string throughput_svg(const RunRecord& record);
std::string memory_svg(const RunRecord& record);

}  // namespace snug::report
