// The page: header, table, charts, a section a row, and where it all comes from.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "experiment/figures.h"
#include "experiment/report_charts.h"
#include "experiment/report_groups.h"
#include "experiment/report_section.h"
#include "experiment/report_style.h"
#include "experiment/report_table.h"
#include "experiment/reports.h"
#include "report/svg_chart.h"

namespace snug::experiment {
namespace {

using report::xml_escape;

std::string isolated(const std::string& text) { return "<bdi>" + xml_escape(text) + "</bdi>"; }

std::string head(const LabRun& run) {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">";
  out += fmt::format(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action "
      "'none'\">",
      page_script_hash());
  out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">";
  out += "<meta name=\"color-scheme\" content=\"light dark\">";
  out += "<link rel=\"icon\" href=\"data:,\">";
  out += fmt::format("<title>{}</title><style>", xml_escape("snug lab: " + run.record.title));
  out += page_style();
  return out + "</style></head>\n";
}

std::string top(const LabRun& run, const std::vector<RowView>& views) {
  const LabRecord& record = run.record;
  std::string out =
      "<a class=\"skip\" href=\"#table\">To the table</a><div class=\"page\"><header>";
  out += fmt::format(
      "<div class=\"top\"><div><h1>{}</h1><p><span class=\"chip\">{}</span></p></div>"
      "<div class=\"tools js\"><button type=\"button\" id=\"theme\" aria-label=\"Light or "
      "dark\">Dark"
      "</button><button type=\"button\" id=\"unfold\">Open all rows</button>"
      "<button type=\"button\" id=\"save\" data-name=\"{}.json\">Figures as "
      "JSON</button></div></div>",
      isolated(record.title.empty() ? record.suite : record.title), xml_escape(mode_words(run)),
      xml_escape(record.suite.empty() ? "lab" : record.suite));
  if (!record.about.empty()) out += fmt::format("<p>{}</p>", isolated(record.about));
  if (!record.source.empty())
    out += fmt::format("<p class=\"mu small\">Published in: {}</p>", isolated(record.source));
  out +=
      fmt::format("<div class=\"headline\"><p><strong>{}</strong></p><p class=\"mu\">{}</p></div>",
                  xml_escape(summary_line(run, views)), isolated(mode_meaning(run)));
  return out + "<p id=\"said\" role=\"status\" class=\"mu small\"></p></header>";
}

// How much of what there is a row takes, under its figure.
std::string meter(const RowView& view, Cell cell) {
  const bool is_own = (cell == Cell::Planned && view.result->predicted) ||
                      (cell == Cell::Measured && view.result->measured);
  const int64_t limit = view.result->limit_bytes;
  if (!is_own || limit <= 0) return "";
  const Figures& figures = cell == Cell::Planned ? *view.result->predicted : *view.result->measured;
  const double share = static_cast<double>(needed_bytes(figures)) / static_cast<double>(limit);
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

std::string table_cell(const RowView& view, const TableColumn& column) {
  if (column.cell == Cell::Row) return row_header(view);
  std::string inside;
  if (column.cell == Cell::Outcome) {
    inside = outcome_chip(view);
  } else if (column.cell == Cell::Verdict) {
    inside = verdict_chip(view);
  } else {
    for (const std::string& line : cell_lines(view, column.cell))
      inside += column.is_number ? "<span>" + xml_escape(line) + "</span>" : breakable(line);
    inside += meter(view, column.cell);
  }
  const bool is_none = inside.empty();
  std::string style = column.is_number ? "n" : column.cell == Cell::Changes ? "what" : "";
  if (is_none) style += style.empty() ? "none" : " none";
  const std::string key = sort_key(view, column.cell);
  return fmt::format("<td role=\"cell\" data-label=\"{}\"{}{}>{}</td>", xml_escape(column.title),
                     style.empty() ? "" : fmt::format(" class=\"{}\"", style),
                     key.empty() ? "" : fmt::format(" data-key=\"{}\"", key),
                     is_none ? "<span class=\"mu\">–</span>" : "<div>" + inside + "</div>");
}

std::string table(const LabRun& run, const std::vector<RowView>& views) {
  const std::vector<TableColumn> columns = table_columns(run, views);
  std::string out =
      "<h2 id=\"table\">The rows</h2><div class=\"scroll card\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Table of the rows\"><table class=\"main\" role=\"table\"><caption>Memory is "
      "the "
      "peak allocated; the bar under it is the share of what there is.</caption>"
      "<thead role=\"rowgroup\"><tr role=\"row\">";
  for (const TableColumn& column : columns)
    out += fmt::format(
        "<th scope=\"col\" role=\"columnheader\"{} aria-sort=\"none\"><button type=\"button\">{}"
        "</button></th>",
        column.is_number ? " class=\"n\"" : "", xml_escape(column.title));
  out += "</tr></thead><tbody role=\"rowgroup\">\n";
  for (const RowView& view : views) {
    out += "<tr role=\"row\">";
    for (const TableColumn& column : columns) out += table_cell(view, column);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>";
}

void term(std::string& out, const std::string& name, const std::string& value) {
  if (!value.empty())
    out += fmt::format("<dt>{}</dt><dd>{}</dd>", xml_escape(name), isolated(value));
}

std::string origin(const LabRun& run) {
  const LabRecord& record = run.record;
  std::string out = "<h2 id=\"origin\">Hardware and versions</h2><dl>";
  term(out, "snug", record.version);
  for (const auto& [library, version] : record.versions)
    if (library != "snug") term(out, library, version);
  term(out, run.mode == Mode::Plan ? "Planned for" : "Device", record.device);
  term(out, "This machine", record.hardware);
  term(out, "Started", record.started);
  if (record.seconds > 0) term(out, "All rows took", seconds_text(record.seconds));
  term(out, "Suite", record.suite);
  term(out, "Command", record.command);
  return out + "</dl>";
}

std::string definitions(const LabRun& run) {
  std::string out = "<h2 id=\"figures-defined\">How figures are defined</h2><dl>";
  term(out, "GiB, MiB", "2^30 and 2^20 bytes.");
  term(out, "Peak allocated",
       "the most bytes that tensors held at one moment, on the device that needed most.");
  term(
      out, "Reserved",
      "what the allocator took from the device to hand out; what has to fit, and what tools of the "
      "driver show, less what the driver itself takes.");
  term(out, "What there is",
       "the memory budget, or the device without what driver and libraries take.");
  term(out, "Categories",
       "as live at the moment of the peak. Activations are kept between forward and backward; "
       "workspace is gone by the end of the operation that made it.");
  term(out, "A step",
       run.mode == Mode::Plan
           ? "estimated seconds of one optimizer step, all its micro-batches, from the device's "
             "profile."
           : "mean seconds of one optimizer step, all its micro-batches, without start-up.");
  term(out, "Tokens/s", "real tokens, without padding, over all devices.");
  term(out, "Work",
       "TFLOP/s that the model needs; what is computed a second time for activation checkpointing "
       "does not count, while published figures may count it.");
  if (const std::string program = counted_program(run); !program.empty())
    term(out, program_words(program) + ", counted",
         "what that program would allocate for the same model, batch and options, counted "
         "operation by operation; it was not run here.");
  const bool has_range =
      std::any_of(run.results.begin(), run.results.end(),
                  [](const RowResult& r) { return r.like && r.like->reserved_ahead > 0; });
  if (has_range)
    term(
        out, "Reserved, host ahead",
        "where the host gathers weights ahead of the device, reserved is anything from what two "
        "blocks need to what all do: a published figure between the two ends, or within a tenth of "
        "the upper one, is met. Deviations are from the upper end.");
  term(out, "Within 10 %", "|figure / published − 1| ≤ 0.1; of several devices the largest.");
  return out + "</dl>";
}

// Data in a script element ends at "</": no "<" is left in it.
std::string data(const LabRun& run) {
  std::string out = "<script type=\"application/json\" id=\"figures\">";
  for (const char c : report_json(run)) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out + "</script>";
}

std::string navigation(const std::vector<std::pair<std::string, std::string>>& parts) {
  std::string out = "<nav aria-label=\"On this page\"><ul>";
  for (const auto& [anchor, words] : parts)
    out += fmt::format("<li><a href=\"#{}\">{}</a></li>", anchor, words);
  return out + "</ul></nav>";
}

}  // namespace

std::string report_html(const LabRun& run) {
  const std::vector<RowView> views = views_of(run);
  const std::vector<RowView> rows = without_tries(views);
  const std::string charts = memory_against_time(run, rows) + memory_by_category(run, rows);
  const std::string sweeps = sweeps_and_searches(run, views);
  std::vector<std::pair<std::string, std::string>> parts{{"table", "The rows"}};
  if (!charts.empty()) parts.emplace_back("memory", "Memory");
  if (!sweeps.empty()) parts.emplace_back("sweeps", "Sweeps and searches");
  parts.insert(parts.end(), {{"each", "Each row"},
                             {"origin", "Hardware and versions"},
                             {"figures-defined", "How figures are defined"}});
  std::string out = head(run) + "<body>" + top(run, views) + navigation(parts) + "<main>";
  if (!rows.empty()) out += table(run, rows);
  if (!charts.empty()) out += "<h2 id=\"memory\">Memory</h2>" + charts;
  out += sweeps + "<h2 id=\"each\">Each row</h2>";
  for (const RowView& view : rows) out += row_section(run, view);
  if (rows.size() < views.size()) {
    out += fmt::format("<details class=\"more\"><summary>The {} tries of the searches</summary>",
                       views.size() - rows.size());
    for (const RowView& view : views)
      if (view.is_try) out += row_section(run, view);
    out += "</details>";
  }
  out += origin(run) + definitions(run) + "</main></div>" + data(run);
  out += "<script>";
  out += page_script();
  return out + "</script></body></html>\n";
}

}  // namespace snug::experiment
