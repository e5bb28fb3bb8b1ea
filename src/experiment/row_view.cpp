// SPDX-License-Identifier: Apache-2.0
#include "experiment/row_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "experiment/explain.h"
#include "experiment/figures.h"

namespace snug::experiment {
namespace {

OutcomeView planned_outcome(const RowResult& result) {
  return result.predicted->fits ? OutcomeView{OutcomeView::Kind::Good, "fits", "✓"}
                                : OutcomeView{OutcomeView::Kind::OutOfMemory, "out of memory", "✗"};
}

OutcomeView outcome_of(const LabRun& run, const RowResult& result) {
  const bool came_through = result.outcome == Outcome::Ok || result.outcome == Outcome::OutOfMemory;
  if (run.mode == Mode::Plan && result.predicted && came_through) return planned_outcome(result);
  switch (result.outcome) {
    case Outcome::Ok:
      return {OutcomeView::Kind::Good, "ok", "✓"};
    case Outcome::OutOfMemory:
      return {OutcomeView::Kind::OutOfMemory, "out of memory", "✗"};
    case Outcome::Error:
      return {OutcomeView::Kind::Bad, "error", "!"};
    case Outcome::Crashed:
      return {OutcomeView::Kind::Bad, "crashed", "!"};
    case Outcome::TimedOut:
      return {OutcomeView::Kind::Bad, "timed out", "!"};
    case Outcome::Interrupted:
      return {OutcomeView::Kind::Bad, "interrupted", "!"};
    case Outcome::NotRun:
      break;
  }
  return {OutcomeView::Kind::None, "not run", "–"};
}

std::string words_of(const LabRun& run, Verdict verdict) {
  const bool has_source =
      run.mode != Mode::Scaled && std::any_of(run.rows.begin(), run.rows.end(), [](const Row& row) {
        return row.expected != Expected::Unknown || !row.published.empty();
      });
  switch (verdict) {
    case Verdict::AsExpected:
      return has_source ? "as published" : "as expected";
    case Verdict::Differs:
      return "differs";
    case Verdict::BeyondIt:
      return "beyond it";
    case Verdict::Unknown:
      break;
  }
  return "";
}

bool is_try(const LabRun& run, const Row& row) {
  return std::any_of(run.suite.groups.begin(), run.suite.groups.end(), [&](const Group& group) {
    return group.kind == Group::Kind::Search && group.id == row.group;
  });
}

template <class Predicate>
std::ptrdiff_t count(const std::vector<RowView>& views, Predicate predicate) {
  return std::count_if(views.begin(), views.end(), predicate);
}

void add_part(std::string& text, std::ptrdiff_t number, const std::string& words) {
  if (number == 0) return;
  if (!text.empty()) text += ", ";
  text += fmt::format("{} {}", number, words);
}

std::string figures_line(const std::vector<RowView>& views) {
  int held = 0, near = 0, between = 0, times = 0, near_times = 0;
  for (const RowView& view : views)
    for (const FigureCheck& check : view.verdict.figures) {
      if (!check.is_held()) continue;
      (check.decides ? held : times) += 1;
      if (check.within_a_tenth())
        (check.decides ? near : near_times) += 1;
      else if (check.decides && check.within_range())
        ++between;
    }
  std::string out;
  if (held > 0)
    out += fmt::format("; {} of {} figure{} within 10 %", near, held, held == 1 ? "" : "s");
  if (between > 0) out += fmt::format(", {} more within what was counted", between);
  if (times > 0)
    out += fmt::format("{} {} of {} that only snug's own can be held against",
                       held > 0 ? ", and" : "; within 10 %", near_times, times);
  return out;
}

}  // namespace

std::vector<RowView> views_of(const LabRun& run) {
  std::vector<RowView> out;
  for (const Row& row : run.rows) {
    const RowResult* result = run.find(row.id);
    if (result == nullptr) continue;
    RowView view;
    view.row = &row;
    view.result = result;
    view.own = own_figures(*result);
    view.outcome = outcome_of(run, *result);
    view.verdict = verdict_of(run, row);
    view.verdict_words = words_of(run, view.verdict.verdict);
    view.changes = changes_text(run, row);
    view.explanation = explain(run, row);
    view.is_try = is_try(run, row);
    out.push_back(std::move(view));
  }
  return out;
}

std::vector<RowView> without_tries(const std::vector<RowView>& views) {
  std::vector<RowView> out;
  for (const RowView& view : views)
    if (!view.is_try) out.push_back(view);
  return out;
}

std::string summary_line(const LabRun& run, const std::vector<RowView>& all) {
  const std::vector<RowView> views = without_tries(all);
  std::string parts;
  for (const Verdict verdict : {Verdict::AsExpected, Verdict::BeyondIt, Verdict::Differs}) {
    const auto is_it = [&](const RowView& v) { return v.verdict.verdict == verdict; };
    add_part(
        parts, count(views, is_it),
        verdict == Verdict::Differs && count(views, is_it) > 1 ? "differ" : words_of(run, verdict));
  }
  for (const char* words : {"error", "crashed", "timed out", "interrupted", "not run"})
    add_part(parts, count(views, [&](const RowView& v) { return v.outcome.words == words; }),
             words);
  const auto is_open = [](const RowView& v) {
    return v.verdict.verdict == Verdict::Unknown &&
           (v.outcome.kind == OutcomeView::Kind::Good ||
            v.outcome.kind == OutcomeView::Kind::OutOfMemory);
  };
  const bool is_all_open = std::cmp_equal(count(views, is_open), views.size());
  if (is_all_open && !views.empty()) {
    const auto is_good = [](const RowView& v) { return v.outcome.kind == OutcomeView::Kind::Good; };
    const std::ptrdiff_t good = count(views, is_good);
    add_part(parts, good, run.mode == Mode::Plan ? (good == 1 ? "fits" : "fit") : "ok");
    add_part(parts, static_cast<std::ptrdiff_t>(views.size()) - good, "out of memory");
  } else {
    add_part(parts, count(views, is_open), "of which nothing was published");
  }
  std::string out = fmt::format("{} row{}: {}{}", views.size(), views.size() == 1 ? "" : "s",
                                parts.empty() ? "nothing yet" : parts, figures_line(views));
  const auto searches =
      std::count_if(run.suite.groups.begin(), run.suite.groups.end(), [&](const Group& group) {
        return group.kind == Group::Kind::Search && !members_of(group, all).empty();
      });
  if (searches > 0) out += fmt::format("; {} search{}", searches, searches == 1 ? "" : "es");
  return out;
}

std::string mode_words(const LabRun& run) {
  switch (run.mode) {
    case Mode::Plan:
      return "planned on " + (run.record.device.empty() ? "a device profile" : run.record.device);
    case Mode::Scaled:
      return "scaled down, measured";
    case Mode::Run:
      break;
  }
  return "measured";
}

std::string mode_meaning(const LabRun& run) {
  switch (run.mode) {
    case Mode::Plan: {
      std::string out =
          "Every row was planned at full size: the true training step was walked through on the "
          "device's profile, and nothing was trained.";
      if (const std::string program = counted_program(run); !program.empty())
        out += fmt::format(
            " What {} would take was counted in the same breath; published figures are held "
            "against that count.",
            program_words(program));
      return out;
    }
    case Mode::Scaled: {
      std::string out =
          "Every row was trained on this machine with a small sibling of its model, so outcomes "
          "and relations between rows compare, sizes do not.";
      if (!run.suite.scaled_about.empty()) out += " " + run.suite.scaled_about;
      return out;
    }
    case Mode::Run:
      break;
  }
  return "Every row was trained at full size on this machine, and memory and time were measured.";
}

std::vector<const RowView*> members_of(const Group& group, const std::vector<RowView>& views) {
  std::vector<const RowView*> out;
  for (const RowView& view : views)
    if (view.row->group == group.id) out.push_back(&view);
  return out;
}

const RowView* best_of_sweep(const std::vector<const RowView*>& members) {
  const RowView* best = nullptr;
  for (const RowView* view : members) {
    if (view->outcome.kind != OutcomeView::Kind::Good || view->own == nullptr) continue;
    if (view->own->tokens_per_second <= 0) continue;
    if (best == nullptr || view->own->tokens_per_second > best->own->tokens_per_second) best = view;
  }
  return best;
}

const RowView* largest_that_fits(const std::vector<const RowView*>& members) {
  const RowView* best = nullptr;
  for (const RowView* view : members) {
    if (view->outcome.kind != OutcomeView::Kind::Good) continue;
    if (best == nullptr || view->row->value.value_or(0) >= best->row->value.value_or(0))
      best = view;
  }
  return best;
}

std::string value_text(const Group& group, const RowView& view) {
  if (!view.row->value || group.over == "model") return view.row->model;
  return fmt::format("{:g}", *view.row->value);
}

std::string counted_program(const LabRun& run) {
  for (const RowResult& result : run.results)
    if (result.like && !result.like_program.empty()) return result.like_program;
  return "";
}

std::string published_text(const FigureCheck& check) {
  return check.unit == FigureCheck::Unit::Seconds ? seconds_text(check.published)
                                                  : memory_text(std::llround(check.published));
}

std::string compared_text(const FigureCheck& check) {
  if (!check.is_held()) return "–";
  if (check.unit == FigureCheck::Unit::Seconds) return seconds_text(check.compared);
  const int64_t bytes = std::llround(check.compared);
  if (check.at_least <= 0) return memory_text(bytes);
  return memory_text(std::llround(check.at_least)) + " to " + memory_text(bytes);
}

}  // namespace snug::experiment
