// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "lab/page/page.h"
#include "lab/report/figures.h"
#include "lab/report/reports.h"
#include "report/charts/charts.h"
#include "report/html_page.h"

namespace snug::lab {
namespace {

using report::xml_escape;

std::string counted_program_of(const std::vector<const RowView*>& members) {
  for (const RowView* view : members)
    if (view->result->like) return view->result->like_program;
  return "";
}

std::string head_cell(const std::string& title, bool is_number = true) {
  return fmt::format("<th scope=\"col\"{}>{}</th>", is_number ? " class=\"n\"" : "",
                     xml_escape(title));
}

std::string number_cell(const std::string& text) {
  return "<td class=\"n\">" + (text.empty() ? "–" : xml_escape(text)) + "</td>";
}

// The value with a link to the row.
std::string value_cell(const Group& group, const RowView& view) {
  return fmt::format("<th scope=\"row\"><a href=\"#{}\">{}</a></th>", xml_escape(anchor_of(view)),
                     isolated(value_text(group, view)));
}

std::string table(const std::string& name, const std::string& style, const std::string& head,
                  const std::string& body) {
  return scrolling(
      name, fmt::format("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>", head, body),
      style);
}

// The memory that must fit, and whether it does.
std::string needed_words(const Figures& figures) {
  const int64_t needed = needed_bytes(figures);
  return needed > 0 ? memory_text(needed) + (figures.fits ? "" : " ✗") : "";
}

const RowView* smallest_that_does_not(const std::vector<const RowView*>& members) {
  const RowView* least = nullptr;
  for (const RowView* view : members)
    if (ran_out(*view) &&
        (least == nullptr || view->row->value.value_or(0) < least->row->value.value_or(0)))
      least = view;
  return least;
}

std::string tries(const Group& group, std::vector<const RowView*> members) {
  std::stable_sort(members.begin(), members.end(), [](const RowView* a, const RowView* b) {
    return a->row->value.value_or(0) < b->row->value.value_or(0);
  });
  const RowView* best = largest_that_fits(members);
  std::string out = "<p>";
  if (std::string open = why_unanswered(group, members); !open.empty()) {
    open[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(open[0])));
    out += xml_escape(open) + (best == nullptr ? "." : ". ");
    if (members.empty()) return out + "</p>";
  } else if (best == nullptr) {
    out += "None of the values tried fits.";
  }
  if (best != nullptr)
    out += fmt::format("The largest that fits: <strong>{} {}</strong>{}.", xml_escape(group.over),
                       isolated(value_text(group, *best)),
                       best->own == nullptr
                           ? ""
                           : fmt::format(", with {}", memory_text(needed_bytes(*best->own))));
  const bool has_reserved = std::any_of(members.begin(), members.end(), [](const RowView* view) {
    return view->own != nullptr && view->own->peak_reserved > 0;
  });
  const std::string program = counted_program_of(members);
  std::string head =
      head_cell(group.over, false) + head_cell(has_reserved ? "Peak reserved" : "Peak");
  if (has_reserved) head += head_cell("allocated");
  if (!program.empty()) head += head_cell(program_words(program) + ", counted");
  head += head_cell("Outcome", false) + head_cell("Step time") + head_cell("Tokens/s");
  std::string body;
  for (const RowView* view : members) {
    const bool is_decisive = view == best || view == smallest_that_does_not(members);
    body += fmt::format("<tr{}>", is_decisive ? "" : " class=\"minor\"") +
            value_cell(group, *view) +
            number_cell(view->own == nullptr ? "" : needed_words(*view->own));
    if (has_reserved)
      body += number_cell(view->own == nullptr ? "" : memory_text(view->own->peak_allocated));
    if (!program.empty())
      body += number_cell(view->result->like ? needed_words(*view->result->like) : "");
    body += "<td>" + outcome_chip(*view) + "</td>" + number_cell(cell_text(*view, Cell::StepTime)) +
            number_cell(cell_text(*view, Cell::TokensPerSecond)) + "</tr>";
  }
  out += "</p>";
  if (members.size() > 2)
    out += fmt::format(
        "<p class=\"paper mu small\">Only the deciding tries are printed; there were {}.</p>",
        members.size());
  return out + table("Tries: " + group.title, "card fit", head, body);
}

// The figures of the charts: snug's and, if the run is of full size, the published ones.
std::string sweep_table(const Group& group, const std::vector<const RowView*>& members,
                        bool has_published) {
  const bool has_reserved = std::any_of(members.begin(), members.end(), [](const RowView* view) {
    return view->own != nullptr && view->own->peak_reserved > 0;
  });
  std::string head = head_cell(group.over, false);
  for (const char* title :
       {has_reserved ? "Peak reserved" : "Peak", "Step time", "TFLOP/s", "Device use"})
    head += head_cell(title) + (has_published ? head_cell("published") : "");
  const std::string program = counted_program_of(members);
  const bool retries =
      std::ranges::any_of(members, [](const RowView* view) { return has_retries(*view); });
  if (retries) head += head_cell("Retries");
  if (retries && !program.empty()) head += head_cell(program_words(program) + "’s");
  head += head_cell("Outcome", false);
  std::string body;
  for (const RowView* view : members) {
    const Published& published = view->row->published;
    const bool has_run = view->own != nullptr && view->outcome.kind == OutcomeView::Kind::Good;
    const Figures own = view->own == nullptr ? Figures{} : *view->own;
    const auto bytes = [](double value) {
      return value > 0 ? memory_text(std::llround(value)) : std::string();
    };
    const auto seconds = [](double value) {
      return value > 0 ? seconds_text(value) : std::string();
    };
    const auto number = [](double value, const char* form) {
      return value > 0 ? fmt::format(fmt::runtime(form), value) : std::string();
    };
    const auto add = [&](const std::string& mine, const std::string& theirs) {
      body += number_cell(mine) + (has_published ? number_cell(theirs) : "");
    };
    body += "<tr>" + value_cell(group, *view);
    add(bytes(static_cast<double>(needed_bytes(own))), bytes(largest(published.reserved)));
    add(has_run ? seconds(own.step_seconds) : "", seconds(published.iteration_seconds.value_or(0)));
    add(has_run ? number(own.model_flops_per_second / 1e12, "{:.1f}") : "",
        number(published.teraflops_per_second.value_or(0), "{:.1f}"));
    add(has_run ? use_text(own.device_use, own.device_use_spread) : "",
        use_text(published.device_use.value_or(0), published.device_use_spread.value_or(0)));
    if (retries) body += number_cell(retries_text(own));
    if (retries && !program.empty())
      body += number_cell(view->result->like ? retries_text(*view->result->like) : "");
    body += "<td>" + outcome_chip(*view) + "</td></tr>";
  }
  return table("Figures of: " + group.title, "card fit gap", head, body);
}

std::string sweep(const LabRun& run, const Group& group,
                  const std::vector<const RowView*>& members) {
  const RowView* best = best_of_sweep(members);
  const bool is_published = std::any_of(members.begin(), members.end(), [](const RowView* view) {
    return !view->row->published.empty();
  });
  std::string out;
  if (best != nullptr)
    out += fmt::format("<p>Most tokens per second at <strong>{} {}</strong>: {}, with {}.</p>",
                       xml_escape(group.over), isolated(value_text(group, *best)),
                       count_text(best->own->tokens_per_second),
                       memory_text(needed_bytes(*best->own)));
  const RowView* published = is_full_size(run) ? best_published(members) : nullptr;
  if (published != nullptr)
    out += fmt::format("<p>Published: most tokens per second at <strong>{} {}</strong>.</p>",
                       xml_escape(group.over), isolated(value_text(group, *published)));
  if (const RowView* counted = best_counted(members))
    out += fmt::format("<p>Counted for {}: most tokens per second at <strong>{} {}</strong>.</p>",
                       program_words(counted->result->like_program), xml_escape(group.over),
                       isolated(value_text(group, *counted)));
  if (is_published && !is_full_size(run))
    out +=
        "<p class=\"mu small\">Published figures are for the models at full size, so they are not "
        "drawn beside these small models.</p>";
  return out + sweep_charts(run, group, members) +
         sweep_table(group, members, is_published && is_full_size(run));
}

}  // namespace

std::string sweeps_and_searches(const LabRun& run, const std::vector<RowView>& views) {
  std::string out;
  for (const Group& group : run.suite.groups) {
    const auto members = members_of(group, views);
    if (members.empty()) continue;
    out += fmt::format("<h3>{}</h3>", isolated(group.title.empty() ? group.id : group.title));
    out += group.kind == Group::Kind::Search ? tries(group, tries_of(group, views))
                                             : sweep(run, group, members);
  }
  return out;
}

// The curves of a sweep. Published figures are for full size, so their points are drawn only beside
// rows of full size, never in a scaled run.

namespace {

constexpr double kSweepWidth = 520;  // two beside each other

using Points = std::vector<std::pair<double, double>>;

// One quantity over the values of a sweep: snug's and the published points.
struct Curve {
  std::string title, unit;
  Points own, published, counted;
  std::string counted_name;
  double limit = 0;
  std::string limit_words;
};

struct Curves {
  explicit Curves(const ByteUnit& unit)
      : bytes(unit.bytes), memory{"Peak memory", "", {}, {}, {}, "", 0, ""} {
    memory.unit = fmt::format("{}, reserved where known", unit.name);
  }
  void add_published(double at, const Published& published);
  void add_counted(double at, const RowResult& result);
  void add_own(double at, const RowView& view);

  double bytes;  // of the unit of memory
  Curve memory;
  Curve time{"Time a step", "ms", {}, {}, {}, "", 0, ""};
  Curve flops{"Work", "TFLOP/s over all devices", {}, {}, {}, "", 0, ""};
  Curve use{"Device use", "% of the step", {}, {}, {}, "", 0, ""};
};

void Curves::add_published(double at, const Published& published) {
  if (!published.reserved.empty())
    memory.published.emplace_back(
        at, *std::max_element(published.reserved.begin(), published.reserved.end()) / bytes);
  if (published.iteration_seconds)
    time.published.emplace_back(at, 1000 * *published.iteration_seconds);
  if (published.teraflops_per_second)
    flops.published.emplace_back(at, *published.teraflops_per_second);
  if (published.device_use) use.published.emplace_back(at, 100 * *published.device_use);
}

void Curves::add_counted(double at, const RowResult& result) {
  if (!result.like) return;
  memory.counted_name = program_words(result.like_program) + ", counted";
  memory.counted.emplace_back(at, static_cast<double>(needed_bytes(*result.like)) / bytes);
  if (!result.like->fits || result.like->step_seconds <= 0) return;
  time.counted_name = memory.counted_name;
  time.counted.emplace_back(at, 1000 * result.like->step_seconds);
}

void Curves::add_own(double at, const RowView& view) {
  if (!came_to_an_end(view)) return;
  memory.own.emplace_back(at, static_cast<double>(needed_bytes(*view.own)) / bytes);
  if (view.result->limit_bytes > 0)
    memory.limit = static_cast<double>(view.result->limit_bytes) / bytes;
  if (view.result->limit_bytes > 0) memory.limit_words = memory_text(view.result->limit_bytes);
  if (ran_out(view)) return;
  if (view.own->step_seconds > 0) time.own.emplace_back(at, 1000 * view.own->step_seconds);
  if (view.own->model_flops_per_second > 0)
    flops.own.emplace_back(at, view.own->model_flops_per_second / 1e12);
  if (view.own->device_use > 0) use.own.emplace_back(at, 100 * view.own->device_use);
}

using Marks = std::vector<std::pair<double, std::string>>;

// Where the most tokens a second are: snug's, and the published ones if they are drawn.
Marks best_rows(const LabRun& run, const std::vector<const RowView*>& members) {
  const RowView* own = best_of_sweep(members);
  const RowView* published = is_full_size(run) ? best_published(members) : nullptr;
  if (own != nullptr && own == published) return {{*own->row->value, "most tokens/s, both"}};
  Marks marks;
  if (own != nullptr) marks.emplace_back(*own->row->value, "most tokens/s");
  if (published != nullptr) marks.emplace_back(*published->row->value, "published: most");
  return marks;
}

double largest_of(const Curve& curve) {
  double most = 0;
  for (const Points* points : {&curve.own, &curve.published, &curve.counted})
    for (const auto& [at, value] : *points) most = std::max(most, value);
  return most;
}

std::string draw(const Curve& curve, const Group& group, const std::string& own_name,
                 const std::vector<double>& values, const Marks& best_rows) {
  report::LineChart chart;
  chart.title = curve.title;
  chart.unit = curve.unit;
  chart.from_zero = true;
  chart.x_label = group.over;
  chart.has_style = false;
  chart.width = kSweepWidth;
  const bool is_far = is_far_above(curve.limit, largest_of(curve));
  if (!is_far) chart.limit = curve.limit;
  if (is_far) chart.unit += "; available: " + curve.limit_words;
  chart.x_ticks = values;
  chart.logarithmic_x = values.front() > 0 && values.back() / values.front() >= kLogarithmicFrom;
  using Look = report::Series::Look;
  if (!curve.published.empty())
    chart.series.push_back({"published", "c1", Look::Rings, curve.published});
  if (!curve.counted.empty())
    chart.series.push_back({curve.counted_name, "c2", Look::Dots, curve.counted});
  if (!curve.own.empty()) chart.series.push_back({own_name, "c0", Look::Dots, curve.own});
  if (chart.series.empty()) return "";
  chart.marks = best_rows;
  const std::string wide = report::line_chart(chart);
  if (wide.empty()) return "";
  chart.width = kPhoneWidth;
  return fmt::format("<figure class=\"narrow\">{}</figure>",
                     either(wide, report::line_chart(chart)));
}

// By the largest of snug's own.
ByteUnit unit_of(const std::vector<const RowView*>& members) {
  double most = 0;
  for (const RowView* view : members)
    if (view->own != nullptr) most = std::max(most, static_cast<double>(needed_bytes(*view->own)));
  return chart_unit(most);
}

}  // namespace

std::string sweep_charts(const LabRun& run, const Group& group,
                         const std::vector<const RowView*>& members) {
  Curves curves(unit_of(members));
  std::vector<double> values;
  for (const RowView* view : members) {
    if (!view->row->value) continue;
    values.push_back(*view->row->value);
    if (is_full_size(run)) curves.add_published(values.back(), view->row->published);
    curves.add_counted(values.back(), *view->result);
    curves.add_own(values.back(), *view);
  }
  if (values.empty()) return "";
  std::sort(values.begin(), values.end());
  const Marks best = best_rows(run, members);
  const bool measured = members[0]->result->measured.has_value();
  std::string out = "<div class=\"sweep\">";
  for (const Curve& curve : {curves.memory, curves.time, curves.flops, curves.use})
    out += draw(curve, group, measured ? "snug, measured" : "snug, planned", values, best);
  return out + "</div>";
}

}  // namespace snug::lab
