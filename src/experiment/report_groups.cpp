// SPDX-License-Identifier: Apache-2.0
#include "experiment/report_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiment/figures.h"
#include "experiment/report_charts.h"
#include "experiment/report_section.h"
#include "experiment/report_table.h"
#include "report/svg_chart.h"

namespace snug::experiment {
namespace {

using report::xml_escape;

std::string isolated(const std::string& text) { return "<bdi>" + xml_escape(text) + "</bdi>"; }

std::string counted_program_of(const std::vector<const RowView*>& members) {
  for (const RowView* view : members)
    if (view->result->like) return view->result->like_program;
  return "";
}

std::string tries(const Group& group, const std::vector<const RowView*>& members) {
  const RowView* best = largest_that_fits(members);
  std::string out = "<p>";
  if (best == nullptr)
    out += "None of the values that were tried fits.";
  else
    out += fmt::format("The largest that fits: <strong>{} {}</strong>{}.", xml_escape(group.over),
                       isolated(value_text(group, *best)),
                       best->own == nullptr
                           ? ""
                           : fmt::format(", with {}", memory_text(best->own->peak_allocated)));
  out += "</p>";
  const bool is_counted = std::any_of(members.begin(), members.end(), [](const RowView* view) {
    return view->result->like.has_value();
  });
  out += fmt::format(
      "<div class=\"scroll card fit\" tabindex=\"0\" role=\"region\" aria-label=\"Tries: "
      "{}\"><table>"
      "<thead><tr><th scope=\"col\">{}</th><th scope=\"col\">Outcome</th><th scope=\"col\" "
      "class=\"n\">Peak</th>{}<th scope=\"col\" class=\"n\">A step</th><th scope=\"col\" "
      "class=\"n\">Tokens/s</th></tr></thead><tbody>",
      xml_escape(group.title), xml_escape(group.over),
      is_counted ? fmt::format("<th scope=\"col\" class=\"n\">{}, counted</th>",
                               xml_escape(program_words(counted_program_of(members))))
                 : "");
  for (const RowView* view : members) {
    const Cell peak = view->result->measured ? Cell::Measured : Cell::Planned;
    out += fmt::format(
        "<tr><th scope=\"row\"><a href=\"#{}\">{}</a></th><td>{}</td><td class=\"n\">{}</td>{}<td "
        "class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
        xml_escape(anchor_of(*view)), isolated(value_text(group, *view)), outcome_chip(*view),
        cell_text(*view, peak),
        is_counted ? fmt::format("<td class=\"n\">{}</td>", cell_text(*view, Cell::Counted)) : "",
        cell_text(*view, Cell::StepTime), cell_text(*view, Cell::TokensPerSecond));
  }
  return out + "</tbody></table></div>";
}

std::string number_cell(const std::string& text) {
  return "<td class=\"n\">" + (text.empty() ? "–" : xml_escape(text)) + "</td>";
}

// What the charts show, in figures: snug's and the published one beside each other.
std::string sweep_table(const Group& group, const std::vector<const RowView*>& members) {
  std::string body;
  for (const RowView* view : members) {
    const Published& published = view->row->published;
    const bool has_run = view->own != nullptr && view->outcome.kind == OutcomeView::Kind::Good;
    const Figures own = view->own == nullptr ? Figures{} : *view->own;
    const auto number = [](double value, const char* form) {
      return value > 0 ? fmt::format(fmt::runtime(form), value) : std::string();
    };
    const double reserved =
        published.reserved.empty()
            ? 0
            : *std::max_element(published.reserved.begin(), published.reserved.end());
    body += fmt::format("<tr><th scope=\"row\"><a href=\"#{}\">{}</a></th><td>{}</td>",
                        xml_escape(anchor_of(*view)), isolated(value_text(group, *view)),
                        outcome_chip(*view));
    body += number_cell(needed_bytes(own) > 0 ? memory_text(needed_bytes(own)) : "");
    body += number_cell(reserved > 0 ? memory_text(std::llround(reserved)) : "");
    body += number_cell(has_run && own.step_seconds > 0 ? seconds_text(own.step_seconds) : "");
    body +=
        number_cell(published.iteration_seconds ? seconds_text(*published.iteration_seconds) : "");
    body += number_cell(has_run ? number(own.model_flops_per_second / 1e12, "{:.1f}") : "");
    body += number_cell(number(published.teraflops_per_second.value_or(0), "{:.1f}"));
    body += number_cell(has_run ? number(100 * own.device_use, "{:.0f} %") : "");
    body += number_cell(number(100 * published.device_use.value_or(0), "{:.1f} %")) + "</tr>";
  }
  std::string head = fmt::format(
      "<thead><tr><th scope=\"col\">{}</th><th scope=\"col\">Outcome</th>", xml_escape(group.over));
  for (const char* title : {"Reserved", "published", "A step", "published", "TFLOP/s", "published",
                            "Device use", "published"})
    head += fmt::format("<th scope=\"col\" class=\"n\">{}</th>", title);
  return fmt::format(
      "<div class=\"scroll card fit gap\" tabindex=\"0\" role=\"region\" aria-label=\"Figures of: "
      "{}\">"
      "<table>{}</tr></thead><tbody>{}</tbody></table></div>",
      xml_escape(group.title), head, body);
}

std::string sweep(const Group& group, const std::vector<const RowView*>& members) {
  const RowView* best = best_of_sweep(members);
  std::string out;
  if (best != nullptr)
    out += fmt::format("<p>Most tokens a second at <strong>{} {}</strong>: {}, with {}.</p>",
                       xml_escape(group.over), isolated(value_text(group, *best)),
                       count_text(best->own->tokens_per_second),
                       memory_text(best->own->peak_allocated));
  return out + sweep_charts(group, members) + sweep_table(group, members);
}

}  // namespace

std::string sweeps_and_searches(const LabRun& run, const std::vector<RowView>& views) {
  std::string out;
  for (const Group& group : run.suite.groups) {
    const auto members = members_of(group, views);
    if (members.empty()) continue;
    out += fmt::format("<h3>{}</h3>", isolated(group.title.empty() ? group.id : group.title));
    out += group.kind == Group::Kind::Search ? tries(group, members) : sweep(group, members);
  }
  return out.empty() ? "" : "<h2 id=\"sweeps\">Sweeps and searches</h2>" + out;
}

}  // namespace snug::experiment
