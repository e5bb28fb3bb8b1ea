// The pages of a run (report.html: loss, throughput, memory by category and phase) and of a plan
// (memory over one optimizer step). Self-contained: inline SVG, no script, light and dark.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "report/charts/charts.h"
#include "report/run_record.h"

namespace snug::report {

// Well-formed as XML too, whatever the strings in `record` hold.
std::string report_html(const RunRecord& record);
void write_report_html(const RunRecord& record, const std::filesystem::path& path);

// Single charts as complete SVG documents, `width` pixels wide; empty when there is nothing to
// draw.
std::string loss_svg(const RunRecord& record, double width = 760);
// Of preferences; else empty.
std::string rewards_svg(const RunRecord& record, double width = 760);
std::string accuracy_svg(const RunRecord& record, double width = 760);
std::string sft_loss_svg(const RunRecord& record, double width = 760);
std::string throughput_svg(const RunRecord& record, double width = 760);
std::string memory_svg(const RunRecord& record, double width = 760);

// What --fit found: text, a table as HTML (Table::html), text.
struct PlanFit {
  std::string above, table, below;
};

struct PlanPage {
  std::string title;
  std::vector<std::string> lines;  // shown above the chart, as in the terminal
  std::vector<std::string> categories;
  std::vector<PlanMoment> moments;
  int64_t limit_bytes = 0;  // of the device; 0: none
  PlanFit fit;              // empty: none
  // Headings with the text below them; empty texts are left out.
  std::vector<std::pair<std::string, std::string>> sections;
};

std::string plan_html(const PlanPage& page);

// Values as one line of at most `width` blocks, low to high.
std::string sparkline(const std::vector<int64_t>& values, int width);

}  // namespace snug::report
