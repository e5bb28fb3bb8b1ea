// SPDX-License-Identifier: Apache-2.0
#include "lab/page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lab/report/figures.h"
#include "lab/report/report_table.h"
#include "report/html_page.h"

namespace snug::lab {
namespace {

using report::xml_escape;

// How far a figure is off, and which figure that is of.
std::string deviations(const RowView& view) {
  std::string out;
  for (const FigureCheck& check : view.verdict.figures) {
    if (!check.is_held()) {
      out += "<span>–</span>";
      continue;
    }
    out += fmt::format("<span>{}</span><small class=\"mu\">{} {}</small>",
                       xml_escape(percent_text(check.deviation())),
                       xml_escape(check.with == "snug" ? "snug:" : program_words(check.with) + ":"),
                       xml_escape(compared_text(check)));
  }
  return out;
}

// The figures of a column of memory; null: it is another column, or the row has none.
const Figures* memory_of(const RowView& view, Cell cell) {
  const RowResult& result = *view.result;
  const std::optional<Figures>* figures = cell == Cell::Planned    ? &result.predicted
                                          : cell == Cell::Measured ? &result.measured
                                          : cell == Cell::Counted  ? &result.like
                                                                   : nullptr;
  return figures != nullptr && *figures && needed_bytes(**figures) > 0 ? &**figures : nullptr;
}

bool is_memory(Cell cell) {
  return cell == Cell::Planned || cell == Cell::Measured || cell == Cell::Counted;
}

// What has to fit, and below it what of that tensors held.
std::string memory_cell(const RowView& view, Cell cell) {
  const Figures* figures = memory_of(view, cell);
  if (figures == nullptr) return "";
  std::string out = fmt::format("<span>{}{}</span>", memory_text(needed_bytes(*figures)),
                                cell == Cell::Counted && !figures->fits ? " ✗" : "");
  if (cell == Cell::Counted && !view.counted_close.empty())
    out += fmt::format("<span>{}</span>", xml_escape(view.counted_close));
  if (figures->peak_reserved > 0)
    out += fmt::format("<small class=\"mu\">allocated {}</small>",
                       memory_text(figures->peak_allocated));
  return out;
}

// How much of what there is a row takes, under its figure.
std::string meter(const RowView& view, Cell cell) {
  const Figures* figures = cell == Cell::Counted ? nullptr : memory_of(view, cell);
  const int64_t limit = view.result->limit_bytes;
  if (figures == nullptr || limit <= 0) return "";
  const double share = static_cast<double>(needed_bytes(*figures)) / static_cast<double>(limit);
  return fmt::format(
      "<span class=\"meter\" aria-hidden=\"true\"><i{} style=\"width:{:.1f}%\"></i></span>",
      share > 1 ? " class=\"over\"" : "", 100 * std::clamp(share, 0.0, 1.0));
}

// Options may break where their words do.
std::string breakable(const std::string& text) {
  std::string out;
  for (const char c : xml_escape(text)) {
    out += c;
    if (c == '_' || c == '.') out += "<wbr>";
  }
  return "<bdi>" + out + "</bdi>";
}

std::string row_header(const RowView& view) {
  return fmt::format(
      "<th scope=\"row\" role=\"rowheader\"><a href=\"#{}\">{}</a><small>{}</small></th>",
      xml_escape(anchor_of(view)), isolated(view.row->id), isolated(view.row->title));
}

std::string table_cell(const RowView& view, const TableColumn& column, const std::string& title) {
  if (column.cell == Cell::Row) return row_header(view);
  std::string inside;
  if (column.cell == Cell::Outcome) {
    inside = outcome_chip(view);
  } else if (column.cell == Cell::Verdict) {
    inside = verdict_chip(view);
  } else if (column.cell == Cell::Deviation) {
    inside = deviations(view);
  } else if (is_memory(column.cell)) {
    inside = memory_cell(view, column.cell);
    if (!inside.empty()) inside += meter(view, column.cell);
  } else {
    for (const std::string& line : cell_lines(view, column.cell))
      inside += column.is_number ? "<span>" + xml_escape(line) + "</span>" : breakable(line);
  }
  const bool is_none = inside.empty();
  std::string style = column.is_number ? "n" : column.cell == Cell::Changes ? "what" : "";
  if (is_none) style += style.empty() ? "none" : " none";
  const std::string key = sort_key(view, column.cell);
  return fmt::format("<td role=\"cell\" data-label=\"{}\"{}{}>{}</td>", xml_escape(title),
                     style.empty() ? "" : fmt::format(" class=\"{}\"", style),
                     key.empty() ? "" : fmt::format(" data-key=\"{}\"", key),
                     is_none ? "<span class=\"mu\">–</span>" : "<div>" + inside + "</div>");
}

}  // namespace

std::string page_table(const LabRun& run, const std::vector<RowView>& views) {
  const std::vector<TableColumn> columns = table_columns(run, views);
  std::string out =
      "<div class=\"scroll card\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Table of the rows\"><table class=\"main\" role=\"table\"><caption>Memory is "
      "the peak that must fit: reserved on a GPU, allocated on a processor. The bar under it shows "
      "the share of the available memory.</caption><thead role=\"rowgroup\"><tr role=\"row\">";
  for (const TableColumn& column : columns)
    out += fmt::format(
        "<th scope=\"col\" role=\"columnheader\"{} aria-sort=\"none\">"
        "<button type=\"button\">{}</button></th>",
        column.is_number ? " class=\"n\"" : "", xml_escape(title_with_kind(column, views)));
  out += "</tr></thead><tbody role=\"rowgroup\">\n";
  for (const RowView& view : views) {
    out += "<tr role=\"row\">";
    for (const TableColumn& column : columns)
      out += table_cell(view, column, title_with_kind(column, views));
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>";
}

}  // namespace snug::lab
