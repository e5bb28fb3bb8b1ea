// The table of a lab run as cells of text: which columns there are (one without a figure in any row
// is left out) and what stands in them. Terminal, Markdown and page differ only in how they draw
// it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lab/report/row_view.h"

namespace snug::lab {

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
  Verdict,
};

struct TableColumn {
  Cell cell;
  std::string title;
  bool is_number = false;
};

std::vector<TableColumn> table_columns(const LabRun& run, const std::vector<RowView>& views);

// "Planned, reserved" where the figures are what a GPU's allocator holds.
std::string title_with_kind(const TableColumn& column, const std::vector<RowView>& views);

// Memory is what has to fit: reserved on a GPU, allocated on a processor. Lines, as a row may have
// several published figures; none: the row has nothing there.
std::vector<std::string> cell_lines(const RowView& view, Cell cell);
std::string cell_text(const RowView& view, Cell cell);  // in one line, "–" for nothing

// To sort by; empty: by its text.
std::string sort_key(const RowView& view, Cell cell);

}  // namespace snug::lab
