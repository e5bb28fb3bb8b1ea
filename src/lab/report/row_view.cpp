// SPDX-License-Identifier: Apache-2.0
#include "lab/report/row_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lab/report/explain.h"
#include "lab/report/figures.h"
#include "lab/report/verdict.h"
#include "recipe/gpus.h"

namespace snug::lab {
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

// "; memory: 15 of 16 within 10 %", "; time: 9 of 16 within 10 % (13 of 16 fitted)".
std::string figures_line(const std::vector<RowView>& views, FigureCheck::Unit unit) {
  int held = 0, near = 0, fitted = 0;
  for (const RowView& view : views)
    for (const FigureCheck& check : view.verdict.figures) {
      if (check.unit != unit || !check.is_held()) continue;
      ++held;
      if (check.within_a_tenth()) ++near;
      if (check.is_fitted) ++fitted;
    }
  if (held == 0) return "";
  std::string out = fmt::format("; {}: {} of {} within 10 %",
                                unit == FigureCheck::Unit::Bytes ? "memory" : "time", near, held);
  if (fitted > 0) out += fmt::format(" ({} of {} fitted)", fitted, held);
  return out;
}

// How many of those that differ are explained.
std::string explained_words(const std::vector<RowView>& views) {
  std::ptrdiff_t differ = 0, explained = 0;
  for (const RowView& view : views) {
    if (view.verdict.verdict != Verdict::Differs) continue;
    ++differ;
    if (!view.why.empty()) ++explained;
  }
  if (explained == 0) return "";
  return explained == differ ? " (explained)" : fmt::format(" ({} explained)", explained);
}

// A row's price is that of the device it is planned for. A run may be on any other.
bool has_priced_device(const LabRun& run, const Row& row, const RowResult& result) {
  if (run.mode != Mode::Run) return run.mode == Mode::Plan;
  const recipe::Gpu* gpu = recipe::gpu_by_cuda_name(result.device);
  return gpu != nullptr ? gpu->profile == row.device : row.device == "cpu";
}

}  // namespace

std::optional<Cost> cost_of(const RowView& view, double tokens) {
  const bool is_timed = view.outcome.kind == OutcomeView::Kind::Good && view.own != nullptr &&
                        view.own->tokens_per_second > 0;
  if (view.price.per_hour <= 0 || !is_timed || tokens <= 0) return std::nullopt;
  const double seconds = tokens / view.own->tokens_per_second;
  return Cost{seconds, view.price.of(seconds, view.result->world_size)};
}

std::optional<Cost> cost_of_epoch(const RowView& view) {
  if (view.own == nullptr) return std::nullopt;
  return cost_of(view, static_cast<double>(view.own->tokens_per_epoch));
}

bool is_full_size(const LabRun& run) { return run.mode != Mode::Scaled; }

bool is_explained_run(const LabRun& run) {
  if (!is_full_size(run)) return false;
  return run.mode == Mode::Run || run.record.device == run.suite.device;
}

bool has_retries(const RowView& view) {
  const auto has = [](const Figures* figures) {
    return figures != nullptr && figures->num_alloc_retries > 0;
  };
  return has(view.own) || (view.result->like && has(&*view.result->like));
}

bool ran_out(const RowView& view) { return view.outcome.kind == OutcomeView::Kind::OutOfMemory; }

bool came_to_an_end(const RowView& view) {
  return view.own != nullptr && (view.outcome.kind == OutcomeView::Kind::Good || ran_out(view));
}

std::vector<std::string> why_lines(const RowView& view) {
  if (view.verdict.verdict != Verdict::Differs || !view.is_full_size) return {};
  if (!view.why.empty()) return view.why;
  return {"The suite gives no explanation."};
}

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
    view.verdict_words = verdict_words(run, row, view.verdict);
    view.marks = figure_marks(view.verdict);
    view.changes = changes_text(run, row);
    view.explanation = explain(run, row);
    if (view.verdict.verdict == Verdict::Differs && is_explained_run(run)) view.why = row.explained;
    if (view.own != nullptr && view.outcome.kind == OutcomeView::Kind::Good)
      view.close = close_text(*view.own, result->limit_bytes);
    if (result->like) view.counted_close = close_text(*result->like, result->limit_bytes);
    if (has_priced_device(run, row, *result))
      view.price = recipe::parse_price(row.price_per_hour).value_or(recipe::Price());
    view.is_full_size = is_full_size(run);
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
    std::string words = verdict_count_words(run, verdict);
    if (verdict == Verdict::BeyondIt && count(views, is_it) > 1)
      words = "fit where the original did not";
    if (verdict == Verdict::Differs)
      words = (count(views, is_it) > 1 ? "differ" : words) + explained_words(views);
    add_part(parts, count(views, is_it), words);
  }
  for (const char* words : {"error", "crashed", "timed out", "interrupted", "not run"})
    add_part(parts, count(views, [&](const RowView& v) { return v.outcome.words == words; }),
             words);
  const auto is_open = [](const RowView& v) {
    return v.verdict.verdict == Verdict::Unknown &&
           (v.outcome.kind == OutcomeView::Kind::Good ||
            v.outcome.kind == OutcomeView::Kind::OutOfMemory);
  };
  const auto has_verdict = [](const RowView& v) { return v.verdict.verdict != Verdict::Unknown; };
  if (count(views, has_verdict) == 0) {
    const auto is_good = [](const RowView& v) { return v.outcome.kind == OutcomeView::Kind::Good; };
    const std::ptrdiff_t good = count(views, is_good);
    add_part(parts, good, run.mode == Mode::Plan ? (good == 1 ? "fits" : "fit") : "ok");
    add_part(parts, count(views, ran_out), "out of memory");
  } else {
    add_part(parts, count(views, is_open),
             is_held_against_published(run) ? "without published figures" : "without expectations");
  }
  std::string out = fmt::format("{} row{}: {}{}", views.size(), views.size() == 1 ? "" : "s",
                                parts.empty() ? "nothing yet" : parts,
                                figures_line(views, FigureCheck::Unit::Bytes) +
                                    figures_line(views, FigureCheck::Unit::Seconds));
  const auto searches =
      std::count_if(run.suite.groups.begin(), run.suite.groups.end(), [&](const Group& group) {
        return group.kind == Group::Kind::Search && !members_of(group, all).empty();
      });
  if (searches > 0) out += fmt::format("; {} search{}", searches, searches == 1 ? "" : "es");
  if (!is_judged(run))
    out +=
        fmt::format("; planned on {} and {} for {}, so the two are not compared", run.record.device,
                    has_source(run) ? "published" : "written", run.suite.device);
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
          "Every row was planned at full size: the real training step was traced for the device "
          "profile, and nothing was trained.";
      if (const std::string program = counted_program(run); !program.empty())
        out += fmt::format(
            " The memory that {} would take was counted as well, and published figures are "
            "compared with that count.",
            program_words(program));
      return out;
    }
    case Mode::Scaled: {
      std::string out =
          "Every row was trained on this machine with a smaller model of the same kind, so "
          "outcomes and relations between rows can be compared, but not sizes.";
      if (!run.suite.scaled_about.empty()) out += " " + run.suite.scaled_about;
      return out;
    }
    case Mode::Run:
      break;
  }
  return "Every row was trained at full size on this machine, and memory and time were measured.";
}

std::string time_meaning(const LabRun& run, const std::vector<RowView>& views) {
  const bool has_short_times =
      run.mode == Mode::Plan && std::any_of(views.begin(), views.end(), [](const RowView& view) {
        return std::any_of(
            view.verdict.figures.begin(), view.verdict.figures.end(), [](const FigureCheck& check) {
              return check.unit == FigureCheck::Unit::Seconds && check.is_held() && !check.decides;
            });
      });
  if (!has_short_times) return "";
  return "Planned times are estimates: they use data-sheet rates, scaled to what published "
         "runs reached (docs/benchmarks.md says which were fitted); links are assumed to have no "
         "other traffic, and the host never to keep the device waiting. So they do not decide the "
         "verdict.";
}

std::string unjudged_times(const std::vector<RowView>& views) {
  std::vector<std::string> off;
  for (const RowView& view : views)
    for (const FigureCheck& check : view.verdict.figures)
      if (check.is_held() && !check.decides && !check.within_a_tenth() &&
          check.unit == FigureCheck::Unit::Seconds)
        off.push_back(fmt::format("{} {}", view.row->id, percent_text(check.deviation())));
  if (off.empty()) return "";
  return fmt::format(
      "Not judged: step times, which are estimates. More than a tenth from the published ones: {}.",
      fmt::join(off, ", "));
}

std::string why_no_cost(const LabRun& run, const std::vector<RowView>& views) {
  if (run.mode != Mode::Run) return "";
  for (const RowView& view : views)
    if (came_to_an_end(view) && !view.row->price_per_hour.empty() && view.price.per_hour <= 0)
      return fmt::format(
          "No cost: price_per_hour is that of {}, but {} ran on {}. Give the row that device (cpu, "
          "or a GPU's profile) and its price.",
          view.row->device, view.row->id, view.result->device);
  return "";
}

std::vector<const RowView*> members_of(const Group& group, const std::vector<RowView>& views) {
  std::vector<const RowView*> out;
  for (const RowView& view : views)
    if (view.row->group == group.id) out.push_back(&view);
  return out;
}

const RowView* best_of_sweep(const std::vector<const RowView*>& members) {
  const RowView* best = nullptr;
  int rows = 0;
  for (const RowView* view : members) {
    if (view->outcome.kind != OutcomeView::Kind::Good || view->own == nullptr) continue;
    if (view->own->tokens_per_second <= 0) continue;
    ++rows;
    if (best == nullptr || view->own->tokens_per_second > best->own->tokens_per_second) best = view;
  }
  return rows > 1 ? best : nullptr;
}

namespace {

// `seconds_of`: a step of a row's, elsewhere; 0: not known.
template <class Seconds>
const RowView* best_elsewhere(const std::vector<const RowView*>& members, Seconds seconds_of) {
  const RowView* best = nullptr;
  int rows = 0;
  double most = 0;
  for (const RowView* view : members) {
    const double seconds = seconds_of(*view);
    if (seconds <= 0 || view->own == nullptr || !view->row->value) continue;
    // Tokens of a step, which take that time.
    const double rate = view->own->tokens_per_second * view->own->step_seconds / seconds;
    if (rate <= 0) continue;
    ++rows;
    if (rate > most) best = view;
    most = std::max(most, rate);
  }
  return rows > 1 ? best : nullptr;
}

}  // namespace

const RowView* best_published(const std::vector<const RowView*>& members) {
  return best_elsewhere(members, [](const RowView& view) {
    return view.row->published.iteration_seconds.value_or(0);
  });
}

const RowView* best_counted(const std::vector<const RowView*>& members) {
  return best_elsewhere(members, [](const RowView& view) {
    return view.result->like && view.result->like->fits ? view.result->like->step_seconds : 0;
  });
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

std::string original_words(const Row& row) {
  std::vector<std::string> options;
  for (const auto& [key, value] : row.original_options)
    options.push_back(fmt::format("{} {}", key, value));
  return joined(options);
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
  return check.unit == FigureCheck::Unit::Seconds ? seconds_text(check.compared)
                                                  : memory_text(std::llround(check.compared));
}

}  // namespace snug::lab
