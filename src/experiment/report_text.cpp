// The terminal's table and the Markdown one.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "experiment/figures.h"
#include "experiment/report_table.h"
#include "experiment/reports.h"
#include "report/tables.h"
#include "report/text_width.h"

namespace snug::experiment {
namespace {

using report::printable;

constexpr size_t kLeastChanges = 16;  // columns that "What changed" keeps at least

std::string shortened(const std::string& text, size_t columns) {
  const std::string clean = printable(text);
  if (report::display_width(clean) <= columns) return clean;
  return report::fit_columns(clean, columns - 1) + "…";
}

// The table's words, with "What changed" cut so that the rest fits the width.
std::string drawn(const std::vector<TableColumn>& columns, const std::vector<RowView>& views,
                  size_t changes_width) {
  std::vector<report::Table::Column> titles;
  for (const TableColumn& column : columns)
    titles.push_back({column.title, column.is_number ? report::Align::Right : report::Align::Left});
  report::Table table(std::move(titles));
  for (const RowView& view : views) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (const TableColumn& column : columns) {
      cells.push_back(cell_lines(view, column.cell));
      if (column.cell == Cell::Changes && !cells.back().empty())
        cells.back()[0] = shortened(cells.back()[0], changes_width);
      height = std::max(height, cells.back().size());
    }
    for (size_t line = 0; line < height; ++line) {
      std::vector<std::string> words;
      for (const auto& cell : cells)
        words.push_back(line < cell.size() ? cell[line] : line == 0 && cell.empty() ? "–" : "");
      table.add_row(std::move(words));
    }
  }
  return table.render();
}

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    widest = std::max(widest, report::display_width(text.substr(start, end - start)));
    start = end + 1;
  }
  return widest;
}

std::string table_of_width(const LabRun& run, const std::vector<RowView>& views, size_t width) {
  std::vector<TableColumn> columns = table_columns(run, views);
  const std::string whole = drawn(columns, views, std::max<size_t>(width, kLeastChanges));
  if (widest_line(whole) <= width) return whole;
  const size_t other = widest_line(drawn(columns, views, kLeastChanges));
  if (other <= width) return drawn(columns, views, kLeastChanges + width - other);
  // Too narrow: what says least goes first.
  std::string text;
  for (const Cell least : {Cell::Changes, Cell::TokensPerSecond, Cell::StepTime, Cell::Deviation,
                           Cell::Published, Cell::Counted}) {
    std::erase_if(columns, [&](const TableColumn& column) { return column.cell == least; });
    text = drawn(columns, views, kLeastChanges);
    if (widest_line(text) <= width) break;
  }
  return text;
}

// Of Markdown: what would end a cell or begin markup.
std::string markdown(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (std::string_view("\\|*_`<>[]#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string reasons(const std::vector<RowView>& views, const char* bullet, bool escape) {
  std::string out;
  for (const RowView& view : views) {
    std::vector<std::string> lines = view.verdict.reasons;
    const bool explains_itself = view.outcome.kind == OutcomeView::Kind::OutOfMemory;
    if (!view.result->reason.empty() && !explains_itself)
      lines.insert(lines.begin(), view.result->reason);
    if (!view.row->not_run.empty()) lines.push_back("Not run: " + view.row->not_run);
    for (const std::string& line : lines)
      out += fmt::format("{}{}: {}\n", bullet,
                         escape ? markdown(view.row->id) : printable(view.row->id),
                         escape ? markdown(line) : printable(line));
  }
  return out;
}

// "; tried 1 ✓, 2 ✓, 4 ✗, 3 ✓".
std::string tries_text(const Group& group, const std::vector<const RowView*>& members) {
  std::string out;
  for (const RowView* view : members)
    out += fmt::format("{}{} {}", out.empty() ? "; tried " : ", ", value_text(group, *view),
                       view->outcome.sign);
  return out;
}

std::string groups_text(const LabRun& run, const std::vector<RowView>& views, bool escape) {
  std::string out;
  for (const Group& group : run.suite.groups) {
    const auto members = members_of(group, views);
    if (members.empty()) continue;
    const bool is_search = group.kind == Group::Kind::Search;
    const RowView* best = is_search ? largest_that_fits(members) : best_of_sweep(members);
    const std::string title = group.title.empty() ? group.id : group.title;
    std::string line = fmt::format("{}: ", title);
    if (best == nullptr)
      line += is_search ? "none of the values tried fits" : "no row ran to its end";
    else if (is_search)
      line += fmt::format("{} {} ({})", group.over, value_text(group, *best),
                          memory_text(best->own == nullptr ? 0 : best->own->peak_allocated));
    else
      line += fmt::format("most tokens a second at {} {} ({})", group.over,
                          value_text(group, *best), count_text(best->own->tokens_per_second));
    if (is_search) line += tries_text(group, members);
    out += fmt::format("{}{}\n", escape ? "- " : "", escape ? markdown(line) : printable(line));
  }
  return out;
}

}  // namespace

std::string report_text(const LabRun& run, int width) {
  const std::vector<RowView> views = views_of(run);
  const auto columns = static_cast<size_t>(std::max(width, 40));
  std::string out = fmt::format("{}, {}\n\n", printable(run.record.title), mode_words(run));
  out += table_of_width(run, without_tries(views), columns);
  if (const std::string groups = groups_text(run, views, false); !groups.empty())
    out += "\n" + groups;
  if (const std::string why = reasons(views, "  ", false); !why.empty()) out += "\n" + why;
  return out + "\n" + summary_line(run, views) + "\n";
}

std::string report_markdown(const LabRun& run) {
  const std::vector<RowView> views = views_of(run);
  const std::vector<RowView> rows = without_tries(views);
  const std::vector<TableColumn> columns = table_columns(run, rows);
  std::string out = fmt::format("# {}\n\n", markdown(run.record.title));
  if (!run.record.about.empty()) out += markdown(run.record.about) + "\n\n";
  out += fmt::format("**{}.** {}\n\n", markdown(summary_line(run, views)),
                     markdown(mode_meaning(run)));
  std::string rule = "|";
  out += "|";
  for (const TableColumn& column : columns) {
    out += fmt::format(" {} |", markdown(column.title));
    rule += column.is_number ? " ---: |" : " --- |";
  }
  out += "\n" + rule + "\n";
  for (const RowView& view : rows) {
    out += "|";
    for (const TableColumn& column : columns)
      out += fmt::format(" {} |", markdown(cell_text(view, column.cell)));
    out += "\n";
  }
  if (const std::string groups = groups_text(run, views, true); !groups.empty())
    out += "\n## Sweeps and searches\n\n" + groups;
  if (const std::string why = reasons(views, "- ", true); !why.empty())
    out += "\n## What differs, and why\n\n" + why;
  out += "\n## What each row did\n\n";
  for (const RowView& view : rows) {
    out += fmt::format("- **{}**:", markdown(view.row->id));
    for (const std::string& sentence : view.explanation) out += " " + markdown(sentence);
    out += "\n";
  }
  return out + fmt::format("\nMemory is the peak allocated, GiB = 2^30 bytes. snug {}, {}, {}.\n",
                           markdown(run.record.version), markdown(run.record.hardware),
                           markdown(run.record.started));
}

}  // namespace snug::experiment
