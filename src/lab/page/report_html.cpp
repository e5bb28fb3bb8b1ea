// The page: header, table, charts, a section a row, and where it all comes from.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "lab/page/page.h"
#include "lab/report/figures.h"
#include "lab/report/reports.h"
#include "lab/report/verdict.h"
#include "report/charts/charts.h"
#include "report/close.h"
#include "report/html_page.h"

namespace snug::lab {
namespace {

using report::xml_escape;
namespace assets = report::assets;

std::string top(const LabRun& run, const std::vector<RowView>& views) {
  const LabRecord& record = run.record;
  std::string out =
      "<a class=\"skip\" href=\"#table\">To the table</a><div class=\"page\"><header>";
  out += fmt::format(
      "<div class=\"top\"><div><h1>{}</h1><p><span class=\"chip\">{}</span></p></div>"
      "<div class=\"tools js\">"
      "<button type=\"button\" id=\"theme\" aria-label=\"Light or dark\">Dark</button>"
      "<button type=\"button\" id=\"unfold\">Open all rows</button>"
      "<button type=\"button\" id=\"save\" data-name=\"{}.json\">Figures as JSON</button>"
      "</div></div>",
      isolated(record.title.empty() ? record.suite : record.title), xml_escape(mode_words(run)),
      xml_escape(record.suite.empty() ? "lab" : record.suite));
  std::string notes;
  for (const std::string& note : {time_meaning(run, views), why_no_cost(run, views)})
    if (!note.empty()) notes += " " + note;
  if (!record.about.empty()) out += fmt::format("<p>{}</p>", isolated(record.about));
  if (!record.source.empty())
    out += fmt::format("<p class=\"mu small\">Published in: {}</p>", isolated(record.source));
  out +=
      fmt::format("<div class=\"headline\"><p><strong>{}</strong></p><p class=\"mu\">{}</p></div>",
                  xml_escape(summary_line(run, views)), isolated(mode_meaning(run) + notes));
  return out + "<p id=\"said\" role=\"status\" class=\"mu small\"></p></header>";
}

// Row by row, with what the suite knows of it.
std::string differences(const std::vector<RowView>& views) {
  std::string out;
  for (const RowView& view : views) {
    const std::vector<std::string> why = why_lines(view);
    if (why.empty()) continue;
    out += fmt::format("<li><a href=\"#{}\">{}</a>", xml_escape(anchor_of(view)),
                       isolated(view.row->id));
    for (const std::string& reason : view.verdict.reasons) out += "<br>" + isolated(reason);
    for (const std::string& line : why) out += "<br>Why: " + isolated(line);
    out += "</li>";
  }
  if (const std::string times = unjudged_times(views); !times.empty())
    out += "<li>" + isolated(times) + "</li>";
  if (out.empty()) return "";
  return "<ul>" + out + "</ul>";
}

void term(std::string& out, const std::string& name, const std::string& value) {
  if (!value.empty())
    out += fmt::format("<dt>{}</dt><dd>{}</dd>", xml_escape(name), isolated(value));
}

std::string origin(const LabRun& run) {
  const LabRecord& record = run.record;
  std::string out = "<dl>";
  term(out, "snug", record.version);
  for (const auto& [library, version] : record.versions)
    if (library != "snug") term(out, library, version);
  term(out, run.mode == Mode::Plan ? "Planned for" : "Device", record.device);
  term(out, "This machine", record.hardware);
  term(out, "Started", record.started);
  if (record.seconds > 0) term(out, "Time of all rows", seconds_text(record.seconds));
  term(out, "Suite", record.suite);
  term(out, "Command", record.command);
  return out + "</dl>";
}

std::string definitions(const LabRun& run, const std::vector<RowView>& views) {
  std::string out = "<dl>";
  term(out, "GiB, MiB", "2^30 and 2^20 bytes.");
  term(out, "Peak allocated",
       "the most bytes that tensors held at one moment, on the device that needed most. Sentences "
       "that compare the peak memory of two rows use this figure.");
  term(out, "Reserved",
       "memory that the allocator took from the device. This must fit; the driver's tools show it "
       "plus the driver's own memory.");
  term(out, "Available",
       "the memory budget, or the memory of the device minus driver and libraries.");
  term(out, "Close",
       fmt::format("it fits, but less than {:.0f} % of the available memory is left. Memory that "
                   "is not counted, such as NCCL's buffers, may take that.",
                   100 * report::kClose));
  term(out, "Categories",
       "live at the moment of the peak. Activations are kept between forward and backward; "
       "workspace is freed at the end of its operation.");
  term(out, "Step time",
       run.mode == Mode::Plan
           ? "estimated seconds of one optimizer step with all its "
             "micro-batches, from the rates of the device profile."
           : "median seconds of an optimizer step with all its micro-batches, "
             "without the first tenth, of ten steps at most, which is a warm-up.");
  term(out, "Tokens/s", "real tokens, without padding, over all devices.");
  term(out, "Work",
       "TFLOP/s that the model needs. Recomputation for activation checkpointing does not count "
       "here, but may count in published figures.");
  if (const std::string program = counted_program(run); !program.empty())
    term(out, program_words(program) + ", counted",
         "memory that the other program would allocate for the same model, batch and options, "
         "counted operation by operation; the program was not run.");
  if (std::ranges::any_of(views, has_retries))
    term(out, "Retries",
         "of the allocator in each step: the device refused memory until what was cached had been "
         "given back, for which it stops.");
  term(out, "Within 10 %",
       "|figure / published − 1| ≤ 0.1; with several devices, the largest figure.");
  out += "</dl>";
  if (const auto is_judged =
          [&](const RowView& view) { return !view.verdict_words.empty() || !view.marks.empty(); };
      std::any_of(views.begin(), views.end(), is_judged)) {
    out += "<h3>Verdicts</h3><dl>";
    for (const auto& [word, meaning] : verdict_meanings(run)) term(out, word, meaning);
    out += "</dl>";
  }
  return out;
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
  const std::string differ = differences(rows);
  std::vector<std::pair<std::string, std::string>> parts{{"table", "The rows"}};
  if (!differ.empty()) parts.emplace_back("differences", "What differs");
  if (!charts.empty()) parts.emplace_back("memory", "Memory");
  if (!sweeps.empty()) parts.emplace_back("sweeps", "Sweeps and searches");
  parts.insert(parts.end(), {{"each", "Each row"},
                             {"origin", "Hardware and versions"},
                             {"figures-defined", "How figures are defined"}});
  std::string each;
  for (const RowView& view : rows) each += row_section(run, view);
  if (rows.size() < views.size()) {
    each += fmt::format("<details class=\"more\"><summary>The {} tries of the searches</summary>",
                        views.size() - rows.size());
    for (const RowView& view : views)
      if (view.is_try) each += row_section(run, view);
    each += "</details>";
  }
  report::HtmlPage page("snug lab: " + run.record.title, {assets::lab_css, assets::timeline_css});
  page.add(top(run, views) + navigation(parts) + "<main>");
  if (!rows.empty()) page.add_section("The rows", page_table(run, rows), "table");
  if (!differ.empty()) page.add_section("What differs, and why", differ, "differences");
  if (!charts.empty()) page.add_section("Memory", charts, "memory");
  if (!sweeps.empty()) page.add_section("Sweeps and searches", sweeps, "sweeps");
  page.add_section("Each row", each, "each");
  page.add_section("Hardware and versions", origin(run), "origin");
  page.add_section("How figures are defined", definitions(run, views), "figures-defined");
  page.add("</main></div>");
  page.set_script(assets::lab_js, assets::lab_js_hash, "figures", report_json(run));
  return page.html();
}

using report::xml_escape;

std::string isolated(const std::string& text) { return "<bdi>" + xml_escape(text) + "</bdi>"; }

std::string scrolling(const std::string& name, const std::string& inside,
                      const std::string& style) {
  return fmt::format(
      "<div class=\"scroll{}\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">{}</div>",
      style.empty() ? "" : " " + style, xml_escape(name), inside);
}

std::string figure(const std::string& title, const std::string& aside, const std::string& inside) {
  return fmt::format("<figure><figcaption>{}{}</figcaption>{}</figure>\n", xml_escape(title),
                     aside.empty() ? "" : fmt::format(" <span>{}</span>", xml_escape(aside)),
                     inside);
}

std::string key_entry(const std::string& colour, const std::string& words) {
  return fmt::format("<li><i style=\"background:{}\"></i>{}</li>", colour, xml_escape(words));
}

std::string colour_of(size_t index) { return fmt::format("var(--k{})", index % 8); }

bool is_visible(int64_t bytes, double full) { return static_cast<double>(bytes) > 0.004 * full; }

bool is_far_above(double limit, double largest) { return limit > 3 * largest; }

ByteUnit chart_unit(double largest_bytes) {
  if (largest_bytes >= static_cast<double>(kGiB)) return {"GiB", static_cast<double>(kGiB)};
  if (largest_bytes >= static_cast<double>(kMiB)) return {"MiB", static_cast<double>(kMiB)};
  return {"KiB", static_cast<double>(kKiB)};
}

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

// The memory that must fit, and below it the memory of tensors.
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

// The share of the available memory, below the figure.
std::string meter(const RowView& view, Cell cell) {
  const Figures* figures = cell == Cell::Counted ? nullptr : memory_of(view, cell);
  const int64_t limit = view.result->limit_bytes;
  if (figures == nullptr || limit <= 0) return "";
  const double share = static_cast<double>(needed_bytes(*figures)) / static_cast<double>(limit);
  return fmt::format(
      "<span class=\"meter\" aria-hidden=\"true\"><i{} style=\"width:{:.1f}%\"></i></span>",
      share > 1 ? " class=\"over\"" : "", 100 * std::clamp(share, 0.0, 1.0));
}

// Options may wrap between words.
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
