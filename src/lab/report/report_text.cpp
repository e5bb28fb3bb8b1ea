// The terminal's table and the Markdown one.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/text.h"
#include "lab/report/figures.h"
#include "lab/report/reports.h"
#include "report/close.h"
#include "report/tables.h"
#include "report/text_width.h"

namespace snug::lab {
namespace {

constexpr size_t kLeastChanges = 16;   // columns that "What changed" keeps at least
constexpr size_t kWidthOfFiles = 120;  // of a table that goes to no terminal
constexpr size_t kMostVerdict = 16;    // columns of a verdict, which goes on in the next line

std::string shortened(const std::string& text, size_t columns) {
  const std::string clean = printable(text);
  if (report::display_width(clean) <= columns) return clean;
  return report::fit_columns(clean, columns - 1) + "…";
}

// A long verdict in several lines, so that it takes no other column's place.
std::vector<std::string> folded_cell(const std::vector<std::string>& lines) {
  std::vector<std::string> out;
  for (const std::string& line : lines)
    for (std::string& part : report::wrapped(line, kMostVerdict)) out.push_back(std::move(part));
  return out;
}

// The cells of the table, with "What changed" cut so that the others fit the width.
std::string drawn(const std::vector<TableColumn>& columns, const std::vector<RowView>& views,
                  size_t changes_width, size_t least_width = 0) {
  constexpr size_t kOutcome = 17;  // columns of "✗ out of memory", and what parts it from names
  std::vector<report::Table::Column> titles;
  for (const TableColumn& column : columns)
    titles.push_back({title_with_kind(column, views),
                      column.is_number ? report::Align::Right : report::Align::Left});
  report::Table table(std::move(titles));
  for (const RowView& view : views) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (const TableColumn& column : columns) {
      cells.push_back(cell_lines(view, column.cell));
      if (column.cell == Cell::Changes && !cells.back().empty())
        cells.back()[0] = shortened(cells.back()[0], changes_width);
      if (column.cell == Cell::Row && least_width > kOutcome)
        cells.back()[0] = shortened(cells.back()[0], least_width - kOutcome);
      if (column.cell == Cell::Verdict) cells.back() = folded_cell(cells.back());
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

// Which of these columns a terminal is too narrow for, and where they are.
std::string left_out_words(const std::vector<std::string>& titles) {
  if (titles.empty()) return "";
  return fmt::format("Columns left out: {}; see report.html or report.csv.\n",
                     fmt::join(titles, ", "));
}

// As one of a list.
std::string without_commas(std::string title) {
  std::erase(title, ',');
  return title;
}

struct FittedTable {
  std::string text;
  std::vector<std::string> left_out;  // titles
};

FittedTable table_of_width(const LabRun& run, const std::vector<RowView>& views, size_t width) {
  std::vector<TableColumn> columns = table_columns(run, views);
  const std::string whole = drawn(columns, views, std::max<size_t>(width, kLeastChanges));
  if (widest_line(whole) <= width) return {whole, {}};
  const size_t other = widest_line(drawn(columns, views, kLeastChanges));
  if (other <= width) return {drawn(columns, views, kLeastChanges + width - other), {}};
  // Too narrow: drop the least important columns first.
  FittedTable table;
  for (const Cell least : {Cell::TokensPerSecond, Cell::Changes, Cell::StepTime, Cell::Epoch,
                           Cell::MillionTokens, Cell::Deviation, Cell::Published, Cell::Counted,
                           Cell::Verdict, Cell::Planned, Cell::Measured}) {
    for (const TableColumn& column : columns)
      if (column.cell == least) table.left_out.push_back(without_commas(column.title));
    std::erase_if(columns, [&](const TableColumn& column) { return column.cell == least; });
    table.text = drawn(columns, views, kLeastChanges);
    const size_t wide = widest_line(table.text);
    if (wide <= width) return table;
  }
  // Only names and outcomes are left: cut the names.
  table.text = drawn(columns, views, kLeastChanges, width);
  return table;
}

// Remarks on a row, beside its line of the table.
std::vector<std::string> remarks_of(const RowView& view) {
  std::vector<std::string> lines = view.verdict.reasons;
  for (const std::string& why : why_lines(view)) lines.push_back("Why: " + why);
  const bool explains_itself = view.outcome.kind == OutcomeView::Kind::OutOfMemory;
  const std::string& not_run = view.row->not_run;
  if (!view.result->reason.empty() && !explains_itself && view.result->reason != not_run)
    lines.insert(lines.begin(), view.result->reason);
  if (!not_run.empty()) lines.push_back("Not run: " + not_run);
  return lines;
}

// "ls02-tiny-small-batch and 12 more" where many rows are left for one reason.
std::string with_others(const std::vector<std::string>& ids) {
  constexpr size_t kMostNamed = 3;
  if (ids.size() <= kMostNamed) return fmt::format("{}", fmt::join(ids, ", "));
  return fmt::format("{} and {} more", ids.front(), ids.size() - 1);
}

// The rows that differ, with the suite's explanations. Rows with the same text are grouped.
std::string reasons(const std::vector<RowView>& views, const char* bullet, bool escape) {
  std::vector<std::pair<std::string, std::vector<std::string>>> said;  // text -> rows
  for (const RowView& view : views)
    for (const std::string& line : remarks_of(view)) {
      const bool is_shared = view.outcome.kind == OutcomeView::Kind::None;
      auto found = std::ranges::find_if(
          said, [&](const auto& each) { return is_shared && each.first == line; });
      if (found == said.end()) found = said.insert(said.end(), {line, {}});
      found->second.push_back(view.row->id);
    }
  std::string out;
  for (const auto& [line, ids] : said) {
    const std::string whose = with_others(ids);
    out += fmt::format("{}{}: {}\n", bullet, escape ? markdown(whose) : printable(whose),
                       escape ? markdown(line) : printable(line));
  }
  if (const std::string times = unjudged_times(views); !times.empty())
    out += bullet + (escape ? markdown(times) : times) + "\n";
  return out;
}

// What the originals of rows have otherwise; rows with the same are grouped.
std::string original_text(const std::vector<RowView>& views, const char* bullet, bool escape) {
  std::vector<std::pair<std::string, std::vector<std::string>>> said;  // options -> rows
  for (const RowView& view : without_tries(views)) {
    const std::string options = original_words(*view.row);
    if (options.empty()) continue;
    auto found = std::ranges::find(said, options, &decltype(said)::value_type::first);
    if (found == said.end()) found = said.insert(said.end(), {options, {}});
    found->second.push_back(view.row->id);
  }
  std::string out;
  for (const auto& [options, ids] : said) {
    const std::string line = fmt::format("{}: the original has {}; --as_published follows it",
                                         with_others(ids), options);
    out += fmt::format("{}{}\n", bullet, escape ? markdown(line) : printable(line));
  }
  return out;
}

// "; tried 1 ✓, 2 ✓, 3 ✓, 4 ✗".
std::string tries_text(const Group& group, const std::vector<const RowView*>& tries) {
  std::string out;
  for (const RowView* view : tries)
    out += fmt::format("{}{} {}", out.empty() ? "; tried " : ", ", value_text(group, *view),
                       view->outcome.sign);
  return out;
}

std::string peak_text(const Figures* figures) {
  if (figures == nullptr) return "";
  return fmt::format(" ({}{})", memory_text(needed_bytes(*figures)),
                     figures->peak_reserved > 0 ? " reserved" : "");
}

std::string search_text(const Group& group, const std::vector<RowView>& views) {
  const auto tries = tries_of(group, views);
  const RowView* best = largest_that_fits(tries);
  const std::string open = why_unanswered(group, tries);
  std::string text = open;
  if (best != nullptr)
    text +=
        fmt::format("{}{} {}{}{}", open.empty() ? "" : "; ", group.over, value_text(group, *best),
                    open.empty() ? "" : " fits", peak_text(best->own));
  else if (open.empty())
    text = "none of the values tried fits";
  return text + tries_text(group, tries);
}

// "; its allocator retries 2 times a step at 8, 5 at 9": what ends the rise.
std::string counted_retries(const Group& group, const std::vector<const RowView*>& members) {
  std::string out;
  for (const RowView* view : members) {
    const std::string retries = view->result->like ? retries_text(*view->result->like) : "";
    if (retries.empty()) continue;
    out += fmt::format("{} {}{} at {}", out.empty() ? "; its allocator retries" : ",", retries,
                       out.empty() ? " times a step" : "", value_text(group, *view));
  }
  return out;
}

bool has_completed(const RowView* view) { return view->outcome.kind == OutcomeView::Kind::Good; }

// Empty: one row completed, which is no optimum.
std::string sweep_text(const LabRun& run, const Group& group,
                       const std::vector<const RowView*>& members) {
  const RowView* best = best_of_sweep(members);
  if (best == nullptr) return std::ranges::any_of(members, has_completed) ? "" : "no row completed";
  const RowView* published = is_full_size(run) ? best_published(members) : nullptr;
  std::string text =
      fmt::format("most tokens per second at {} {} ({})", group.over, value_text(group, *best),
                  count_text(best->own->tokens_per_second));
  if (published != nullptr)
    text += fmt::format("; published: at {}", value_text(group, *published));
  if (const RowView* counted = best_counted(members))
    text += fmt::format("; counted for {}: at {}", program_words(counted->result->like_program),
                        value_text(group, *counted)) +
            counted_retries(group, members);
  return text;
}

std::string groups_text(const LabRun& run, const std::vector<RowView>& views, bool escape) {
  std::string out;
  for (const Group& group : run.suite.groups) {
    const auto members = members_of(group, views);
    if (members.empty()) continue;
    const std::string found = group.kind == Group::Kind::Search ? search_text(group, views)
                                                                : sweep_text(run, group, members);
    if (found.empty()) continue;
    const std::string line =
        fmt::format("{}: {}", group.title.empty() ? group.id : group.title, found);
    out += fmt::format("{}{}\n", escape ? "- " : "", escape ? markdown(line) : printable(line));
  }
  return out;
}

std::string words_of_plans(const LabRun& run) {
  if (run.mode == Mode::Scaled) return "scaled down, planned and not run";
  return run.mode == Mode::Run ? "planned for this machine and not run" : mode_words(run);
}

// The figure that decides, and behind it what of that tensors held.
std::string markdown_cell(const RowView& view, const TableColumn& column) {
  const RowResult& result = *view.result;
  const std::optional<Figures>* figures = column.cell == Cell::Planned    ? &result.predicted
                                          : column.cell == Cell::Measured ? &result.measured
                                          : column.cell == Cell::Counted  ? &result.like
                                                                          : nullptr;
  std::string text = cell_text(view, column.cell);
  if (figures != nullptr && *figures && (*figures)->peak_reserved > 0)
    text += fmt::format(", {} allocated", memory_text((*figures)->peak_allocated));
  return text;
}

}  // namespace

std::string markdown(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (std::string_view("\\|*_`<>[]#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string report_text(const LabRun& run, int width, Shown what) {
  const std::vector<RowView> views = views_of(run);
  // 0: not a terminal; lines are not cut.
  const size_t columns = width > 0 ? static_cast<size_t>(std::max(width, 40)) : 0;
  const FittedTable table =
      table_of_width(run, without_tries(views), columns > 0 ? columns : kWidthOfFiles);
  std::string rest;
  if (!table.left_out.empty()) rest += left_out_words(table.left_out);
  if (const std::string groups = groups_text(run, views, false); !groups.empty())
    rest += "\n" + groups;
  if (const std::string why = reasons(views, "  ", false); !why.empty()) rest += "\n" + why;
  if (const std::string original = original_text(views, "  ", false); !original.empty())
    rest += "\n" + original;
  if (const std::string why = why_no_cost(run, views); !why.empty()) rest += "\n  " + why + "\n";
  rest += "\n" + summary_line(run, views) + "\n";
  const std::string title =
      fmt::format("{}, {}\n\n", printable(run.record.title),
                  what == Shown::PlansOfRuns ? words_of_plans(run) : mode_words(run));
  return report::folded(title, columns) + table.text + report::folded(rest, columns);
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
    out += fmt::format(" {} |", markdown(title_with_kind(column, rows)));
    rule += column.is_number ? " ---: |" : " --- |";
  }
  out += "\n" + rule + "\n";
  for (const RowView& view : rows) {
    out += "|";
    for (const TableColumn& column : columns)
      out += fmt::format(" {} |", markdown(markdown_cell(view, column)));
    out += "\n";
  }
  if (const std::string why = why_no_cost(run, views); !why.empty())
    out += "\n" + markdown(why) + "\n";
  if (const std::string groups = groups_text(run, views, true); !groups.empty())
    out += "\n## Sweeps and searches\n\n" + groups;
  if (const std::string why = reasons(views, "- ", true); !why.empty())
    out += "\n## What differs, and why\n\n" + why;
  if (const std::string original = original_text(views, "- ", true); !original.empty())
    out += "\n## What the originals have otherwise\n\n" + original;
  out += "\n## What each row did\n\n";
  for (const RowView& view : rows) {
    out += fmt::format("- **{}**:", markdown(view.row->id));
    for (const std::string& sentence : view.explanation) out += " " + markdown(sentence);
    out += "\n";
  }
  return out + fmt::format(
                   "\nMemory is the peak that must fit: reserved on a GPU, allocated on a "
                   "processor; GiB = 2^30 bytes. Close: less than {:.0f} % of the available memory "
                   "is left. snug {}, {}, {}.\n",
                   100 * report::kClose, markdown(run.record.version),
                   markdown(run.record.hardware), markdown(run.record.started));
}

}  // namespace snug::lab
