// SPDX-License-Identifier: Apache-2.0
#include "lab/report/reports.h"

#include "base/files.h"

namespace snug::lab {

void write_reports(const LabRun& run) {
  write_file_atomically(run.folder / "report.html", report_html(run));
  write_file_atomically(run.folder / "report.md", report_markdown(run));
  write_file_atomically(run.folder / "report.csv", report_csv(run));
  write_file_atomically(run.folder / "report.json", report_json(run));
}

}  // namespace snug::lab
