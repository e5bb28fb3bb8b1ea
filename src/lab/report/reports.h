// The report of a lab run in four forms, and comparisons of runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lab/report/row_view.h"
#include "lab/result.h"
#include "report/run_record.h"

namespace snug::lab {

// One file that loads nothing, for any width, print and dark mode.
std::string report_html(const LabRun& run);
std::string report_markdown(const LabRun& run);
// Escapes what would end a cell of Markdown or start markup.
std::string markdown(const std::string& text);
// A sheet for people to write on, as Markdown: the rows with what was measured, and questions.
std::string worksheet(const LabRun& run);
std::string report_csv(const LabRun& run);  // one line per row; bytes and seconds
std::string report_json(const LabRun& run);

// The table for a terminal of `width` columns (0: not a terminal). A dry run shows the plans of the
// runs that it would start.
enum class Shown { Results, PlansOfRuns };
std::string report_text(const LabRun& run, int width, Shown what = Shown::Results);

// Writes report.html, .md, .csv and .json into the run's folder.
void write_reports(const LabRun& run);

// Compares two lab runs row by row, after listing the rows that only one of them has.
size_t rows_in_both(const LabRun& first, const LabRun& second);
std::string compare_text(const LabRun& first, const LabRun& second, int width);
std::string compare_json(const LabRun& first, const LabRun& second);

// The table of a lab run as cells of text, shared by terminal, Markdown and page. Columns without a
// figure in any row are left out.
enum class Cell {
  Row,
  Changes,
  Outcome,
  Planned,
  Measured,
  Counted,
  Published,
  Deviation,
  StepTime,
  TokensPerSecond,
  MillionTokens,
  Epoch,
  Verdict,
};

struct TableColumn {
  Cell cell;
  std::string title;
  bool is_number = false;
};

std::vector<TableColumn> table_columns(const LabRun& run, const std::vector<RowView>& views);

// "Planned, reserved" if the figures are what a GPU's allocator reserves.
std::string title_with_kind(const TableColumn& column, const std::vector<RowView>& views);

// Memory is what has to fit: reserved on a GPU, allocated on a CPU. Several lines for several
// published figures; none if the row has no figure.
std::vector<std::string> cell_lines(const RowView& view, Cell cell);
std::string cell_text(const RowView& view, Cell cell);  // in one line, "–" for nothing

// The key to sort by; empty: the text.
std::string sort_key(const RowView& view, Cell cell);

// The answer of a search, from its tries so far.

// The finished tries, in the order of their values.
std::vector<const RowView*> tries_of(const Group& search, const std::vector<RowView>& views);

// Whether the edge is known: a value fits and the next one does not, or the search reached the end
// of its range.
bool is_answered(const Group& search, const std::vector<const RowView*>& tries);

// Why the edge is not known: "no answer, since 4 ended in error"; empty if it is known.
std::string why_unanswered(const Group& search, const std::vector<const RowView*>& tries);

// Compares ordinary runs from their run.json: outcome, loss, speed, memory by category, and the
// differences of their recipes.
struct NamedRun {
  std::string name;  // as given on the command line
  report::RunRecord record;
};

// `path` itself or the run.json in it; empty if there is none.
std::filesystem::path run_record_in(const std::filesystem::path& path);

// One column per run; figures that no run has are left out. Changes are against the first run.
std::string compare_runs_text(const std::vector<NamedRun>& runs);
std::string compare_runs_json(const std::vector<NamedRun>& runs);

}  // namespace snug::lab
