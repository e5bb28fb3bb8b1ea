// SPDX-License-Identifier: Apache-2.0
#include "lab/page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "lab/report/figures.h"
#include "report/html_page.h"

namespace snug::lab {
namespace {

using report::xml_escape;

constexpr int kTailBytes = 16384;
constexpr size_t kTailLines = 40;
constexpr size_t kMoments = 2400;  // of all rows: with more of them the page grows no further

std::string paragraph(const std::string& text, const char* style = "") {
  if (text.empty()) return "";
  return fmt::format("<p{}>{}</p>", *style == 0 ? "" : fmt::format(" class=\"{}\"", style),
                     isolated(text));
}

std::string code(const std::string& title, const std::string& text, const char* style = "again") {
  if (text.empty()) return "";
  return fmt::format(
      "<div class=\"{}\"><h4>{}</h4><div class=\"code\"><pre tabindex=\"0\">{}</pre><button "
      "type=\"button\" "
      "class=\"copy js\" aria-label=\"Copy: {}\">Copy</button></div></div>",
      style, title, isolated(text), title);
}

std::string list(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out = fmt::format("<h4>{}</h4><ul>", title);
  for (const std::string& line : lines) out += "<li>" + isolated(line) + "</li>";
  return out + "</ul>";
}

std::string scrolling_table(const std::string& name, const std::string& inside) {
  return scrolling(name, "<table>" + inside + "</table>");
}

std::string cell(const std::string& text) {
  return "<td class=\"n\">" + xml_escape(text) + "</td>";
}

std::string bytes_cell(int64_t bytes) { return cell(bytes > 0 ? memory_text(bytes) : "–"); }

std::string head_cells(const std::vector<std::string>& titles) {
  std::string out = "<thead><tr>";
  for (size_t i = 0; i < titles.size(); ++i)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", i == 0 ? "" : " class=\"n\"",
                       xml_escape(titles[i]));
  return out + "</tr></thead>";
}

// Planned, counted and measured side by side, by category.
std::string peak_table(const RowView& view) {
  const RowResult& result = *view.result;
  std::vector<const Figures*> sides;
  std::vector<std::string> titles{"At the peak"};
  const auto add = [&](const std::optional<Figures>& figures, const std::string& title) {
    if (!figures) return;
    sides.push_back(&*figures);
    titles.push_back(title);
  };
  add(result.predicted, "snug, planned");
  add(result.measured, "snug, measured");
  add(result.like, program_words(result.like_program) + ", counted");
  if (sides.empty()) return "";
  std::string body = "<tbody>";
  const auto line = [&](const std::string& title, auto value) {
    const bool is_filled = std::any_of(sides.begin(), sides.end(),
                                       [&](const Figures* side) { return value(*side) > 0; });
    if (!is_filled) return;
    body += "<tr><th scope=\"row\">" + xml_escape(title) + "</th>";
    for (const Figures* side : sides) body += bytes_cell(value(*side));
    body += "</tr>";
  };
  for (const std::string& category : categories_of(sides))
    line(category_words(category), [&](const Figures& f) { return bytes_of(f, category); });
  line("peak allocated", [](const Figures& f) { return f.peak_allocated; });
  line("peak reserved", [](const Figures& f) { return f.peak_reserved; });
  line("after the forward", [](const Figures& f) { return f.after_forward; });
  line("in host memory", [](const Figures& f) { return f.peak_host; });
  const auto are = [](const Figures* side) { return side->num_alloc_retries > 0; };
  if (std::ranges::any_of(sides, are)) {
    body += "<tr><th scope=\"row\">retries of the allocator a step</th>";
    for (const Figures* side : sides) body += cell(are(side) ? retries_text(*side) : "–");
    body += "</tr>";
  }
  return "<h4>Memory</h4>" +
         scrolling_table("Memory of " + view.row->id, head_cells(titles) + body + "</tbody>");
}

std::string checks_table(const RowView& view) {
  if (view.verdict.figures.empty()) return "";
  std::string body = "<tbody>";
  for (const FigureCheck& check : view.verdict.figures) {
    const std::string with =
        check.with == "snug" ? "snug" : program_words(check.with) + ", counted";
    body += fmt::format("<tr><th scope=\"row\">{}</th>", xml_escape(check.what)) +
            cell(published_text(check)) + cell(check.is_held() ? with : "–") +
            cell(compared_text(check)) +
            cell(check.is_held() ? percent_text(check.deviation()) : "–") +
            cell(!check.is_held()         ? "not compared"
                 : check.within_a_tenth() ? "✓ yes"
                                          : "✗ no") +
            "</tr>";
  }
  return "<h4>Published figures</h4>" +
         scrolling_table("Published figures of " + view.row->id,
                         head_cells({"Figure", "Published", "Compared with", "It has", "Deviation",
                                     "Within 10 %"}) +
                             body + "</tbody>");
}

// Published figures that have no counterpart here.
std::vector<std::string> also_published(const Published& published) {
  std::vector<std::string> out;
  if (published.teraflops_per_second)
    out.push_back(fmt::format("{:.4g} TFLOP/s over all devices", *published.teraflops_per_second));
  if (published.device_use)
    out.push_back(
        published.device_use_spread
            ? fmt::format("devices busy {:.1f} ± {:.1f} % of the time", 100 * *published.device_use,
                          100 * *published.device_use_spread)
            : fmt::format("devices busy {:.1f} % of the time", 100 * *published.device_use));
  if (published.epoch_seconds) out.push_back(seconds_text(*published.epoch_seconds) + " an epoch");
  if (published.last_loss)
    out.push_back(fmt::format("a last loss of {:.4g}", *published.last_loss));
  return out;
}

std::string phases_table(const RowView& view) {
  const std::vector<PhasePoint>& phases = view.result->phases;
  if (phases.empty()) return "";
  // The first step, where states are made, and the last: what is between is like the last.
  const std::set<int64_t> steps{phases.front().step, phases.back().step};
  Figures all;
  for (const PhasePoint& phase : phases)
    for (const auto& [category, bytes] : phase.by_category) all.by_category[category] += bytes;
  const std::vector<std::string> categories = categories_of({&all});
  std::vector<std::string> titles{"Step, phase"};
  for (const std::string& category : categories) titles.push_back(category_words(category));
  titles.insert(titles.end(), {"allocated", "peak so far"});
  const bool has_reserved =
      std::any_of(phases.begin(), phases.end(), [](const PhasePoint& p) { return p.reserved > 0; });
  if (has_reserved) titles.emplace_back("reserved");
  std::string body = "<tbody>";
  for (const PhasePoint& phase : phases) {
    if (!steps.contains(phase.step)) continue;
    body += fmt::format("<tr><th scope=\"row\">{}, {}</th>", phase.step, xml_escape(phase.phase));
    for (const std::string& category : categories) {
      const auto found = phase.by_category.find(category);
      body += bytes_cell(found == phase.by_category.end() ? 0 : found->second);
    }
    body += bytes_cell(phase.allocated) + bytes_cell(phase.peak);
    if (has_reserved) body += bytes_cell(phase.reserved);
    body += "</tr>";
  }
  return "<h4>Measured at the end of each phase</h4>" +
         scrolling_table("Phases of " + view.row->id, head_cells(titles) + body + "</tbody>");
}

std::string log_block(const LabRun& run, const RowView& view) {
  const bool is_wanted =
      view.outcome.kind == OutcomeView::Kind::Bad ||
      (view.outcome.kind == OutcomeView::Kind::OutOfMemory && run.mode != Mode::Plan);
  if (!is_wanted) return "";
  const std::string tail = log_tail(run, view);
  if (tail.empty()) return "";
  return fmt::format("<h4>Last output</h4><pre class=\"log\" tabindex=\"0\">{}</pre>",
                     isolated(tail));
}

std::string summary_end(const RowView& view) {
  std::string out;
  if (view.own != nullptr && view.own->peak_allocated > 0 &&
      view.outcome.kind != OutcomeView::Kind::Bad)
    out += fmt::format("<span>{}</span>", memory_text(needed_bytes(*view.own)));
  if (view.own != nullptr && view.own->step_seconds > 0 &&
      view.outcome.kind == OutcomeView::Kind::Good)
    out += fmt::format("<span>{}</span>", seconds_text(view.own->step_seconds));
  return out + outcome_chip(view) + verdict_chip(view);
}

std::string without_escapes(const std::string& line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\r') {
      out.clear();
    } else if (line[i] == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
      i += 2;
      while (i < line.size() && (line[i] < '@' || line[i] > '~')) ++i;
    } else {
      out += line[i];
    }
  }
  return out;
}

}  // namespace

std::string outcome_chip(const RowView& view) {
  const char* style = view.outcome.kind == OutcomeView::Kind::Good          ? "good"
                      : view.outcome.kind == OutcomeView::Kind::OutOfMemory ? "bad"
                      : view.outcome.kind == OutcomeView::Kind::Bad         ? "warn"
                                                                            : "";
  std::string out = fmt::format("<span class=\"chip {}\">{} {}</span>", style, view.outcome.sign,
                                xml_escape(view.outcome.words));
  if (!view.close.empty())
    out += fmt::format(" <span class=\"chip warn\">{}</span>", xml_escape(view.close));
  return out;
}

std::string verdict_chip(const RowView& view) {
  std::string marks;
  for (const FigureMark& mark : view.marks)
    marks += fmt::format(" <span class=\"chip {}\">{}</span>", mark.is_met ? "good" : "warn",
                         xml_escape(mark.words));
  if (view.verdict_words.empty()) return marks;
  const Verdict verdict = view.verdict.verdict;
  const char* style = verdict == Verdict::AsExpected ? "good"
                      : verdict == Verdict::BeyondIt ? "beyond"
                                                     : "warn";
  const char* sign = verdict == Verdict::AsExpected ? "="
                     : verdict == Verdict::BeyondIt ? "↗"
                                                    : "≠";
  return fmt::format("<span class=\"chip {}\">{} {}</span>", style, sign,
                     xml_escape(view.verdict_words)) +
         marks;
}

std::string log_tail(const LabRun& run, const RowView& view) {
  std::ifstream file(run.folder / "rows" / view.row->id / "output.log", std::ios::binary);
  if (!file) return "";
  file.seekg(0, std::ios::end);
  const auto size = static_cast<std::streamoff>(file.tellg());
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    const bool is_rest = size > kTailBytes && lines.empty() && line.find('\r') == std::string::npos;
    lines.push_back(is_rest ? "" : without_escapes(line));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::string out;
  const size_t first = lines.size() > kTailLines ? lines.size() - kTailLines : 0;
  for (size_t i = first; i < lines.size(); ++i) out += lines[i] + "\n";
  return out;
}

std::string row_section(const LabRun& run, const RowView& view) {
  const RowResult& result = *view.result;
  std::string out = fmt::format(
      "<details class=\"row\" id=\"{}\"><summary><h3>{}</h3><span class=\"mu\">{}</span>"
      "<span class=\"end\">{}</span></summary><div class=\"body\">",
      xml_escape(anchor_of(view)), isolated(view.row->id), isolated(view.row->title),
      summary_end(view));
  for (const std::string& sentence : view.explanation) out += paragraph(sentence);
  if (!view.changes.empty()) out += paragraph("What changed: " + view.changes, "mu");
  const bool says_reason = std::any_of(view.explanation.begin(), view.explanation.end(),
                                       [&](const std::string& sentence) {
                                         return sentence.find(result.reason) != std::string::npos;
                                       });
  const bool is_planned_end =  // the first sentence has it
      run.mode == Mode::Plan && view.outcome.kind == OutcomeView::Kind::OutOfMemory;
  if (!result.reason.empty() && !says_reason && !is_planned_end) out += paragraph(result.reason);
  out += list(
      view.verdict.verdict == Verdict::BeyondIt ? "Beyond what was published" : "How it differs",
      view.verdict.reasons);
  out += list("Why", why_lines(view));
  std::string drawings = loss_curve(view);
  if (!view.is_try)  // whose neighbours look the same
    drawings = memory_over_a_step(view, std::clamp<size_t>(kMoments / run.rows.size(), 40, 110)) +
               drawings;
  if (!drawings.empty()) out += "<div class=\"side drawings\">" + drawings + "</div>";
  const std::string beside = checks_table(view) +
                             list(view.is_full_size ? "Also published" : "Published at full size",
                                  also_published(view.row->published)) +
                             peak_table(view);
  if (!beside.empty()) out += "<div class=\"side\">" + beside + "</div>";
  out += phases_table(view);
  std::vector<std::string> notes = view.row->notes;
  notes.insert(notes.end(), result.like_notes.begin(), result.like_notes.end());
  if (const std::string original = original_words(*view.row); !original.empty())
    notes.push_back(fmt::format("The original has {}; --as_published follows it.", original));
  if (!view.row->hardware.empty())
    notes.push_back((has_source(run) ? "Published for " : "Meant for ") + view.row->hardware + ".");
  out += list("Notes", notes) + log_block(run, view);
  out += code("Run it again", result.command);
  if (result.plan_command != result.command)
    out += code("Plan it again", result.plan_command, "desk");
  return out + "</div></details>\n";
}

}  // namespace snug::lab
