// SPDX-License-Identifier: Apache-2.0
#include "lab/report/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lab/report/figures.h"

namespace snug::lab {
namespace {

const Figures* figures_in(const RowView& view, Cell cell) {
  const RowResult& result = *view.result;
  if (cell == Cell::Planned) return result.predicted ? &*result.predicted : nullptr;
  if (cell == Cell::Measured) return result.measured ? &*result.measured : nullptr;
  if (cell == Cell::Counted) return result.like ? &*result.like : nullptr;
  return view.own;
}

std::vector<std::string> published_lines(const RowView& view) {
  std::vector<std::string> out;
  for (const FigureCheck& check : view.verdict.figures)
    out.push_back(published_text(check) + " " + check.what);
  const Published& published = view.row->published;
  if (published.epoch_seconds && view.is_full_size)
    out.push_back(seconds_text(*published.epoch_seconds) + " an epoch");
  if (view.row->expected == Expected::OutOfMemory)
    out.insert(out.begin(), "out of memory");
  else if (out.empty() && view.row->expected == Expected::Ok)
    out.emplace_back("fits");
  return out;
}

std::vector<std::string> deviation_lines(const RowView& view) {
  std::vector<std::string> out;
  for (const FigureCheck& check : view.verdict.figures)
    out.push_back(check.is_held() ? fmt::format("{} ({}{})", percent_text(check.deviation()),
                                                check.decides ? "" : "snug ", compared_text(check))
                                  : "–");
  return out;
}

// Time of a row that does not fit is no time. What the steps took that a row was given the time for
// was measured.
const Figures* timed(const RowView& view) {
  if (view.outcome.kind == OutcomeView::Kind::Good) return view.own;
  const bool has_steps = view.result->outcome == Outcome::TimedOut && view.result->measured;
  return has_steps ? &*view.result->measured : nullptr;
}

std::vector<std::string> cost_lines(const RowView& view, const std::optional<Cost>& cost) {
  if (!cost) return {};
  return {seconds_text(cost->seconds), recipe::money_text(cost->price, view.price.currency)};
}

}  // namespace

std::vector<std::string> cell_lines(const RowView& view, Cell cell) {
  const Figures* figures = figures_in(view, cell);
  switch (cell) {
    case Cell::Row:
      return {view.row->id};
    case Cell::Changes:
      if (view.changes.empty()) return {};
      return {view.changes};
    case Cell::Outcome:
      if (!view.close.empty()) return {view.outcome.sign + " " + view.outcome.words, view.close};
      return {view.outcome.sign + " " + view.outcome.words};
    case Cell::Planned:
    case Cell::Measured:
    case Cell::Counted:
      if (figures == nullptr || needed_bytes(*figures) <= 0) return {};
      if (cell == Cell::Counted && !figures->fits)
        return {memory_text(needed_bytes(*figures)) + " ✗"};
      if (cell == Cell::Counted && !view.counted_close.empty())
        return {memory_text(needed_bytes(*figures)), view.counted_close};
      return {memory_text(needed_bytes(*figures))};
    case Cell::Published:
      return published_lines(view);
    case Cell::Deviation:
      return deviation_lines(view);
    case Cell::StepTime:
      if (timed(view) == nullptr || timed(view)->step_seconds <= 0) return {};
      return {seconds_text(timed(view)->step_seconds)};
    case Cell::TokensPerSecond:
      if (timed(view) == nullptr || timed(view)->tokens_per_second <= 0) return {};
      return {count_text(timed(view)->tokens_per_second)};
    case Cell::MillionTokens:
      return cost_lines(view, cost_of(view, 1e6));
    case Cell::Epoch:
      return cost_lines(view, cost_of_epoch(view));
    case Cell::Verdict:
      if (view.verdict_words.empty()) return {};
      return {view.verdict_words};
  }
  return {};
}

std::string cell_text(const RowView& view, Cell cell) {
  std::string out;
  for (const std::string& line : cell_lines(view, cell)) {
    if (!out.empty()) out += ", ";
    out += line;
  }
  return out.empty() ? "–" : out;
}

std::string sort_key(const RowView& view, Cell cell) {
  const Figures* figures = figures_in(view, cell);
  switch (cell) {
    case Cell::Planned:
    case Cell::Measured:
    case Cell::Counted:
      return fmt::format("{}", figures == nullptr ? 0 : needed_bytes(*figures));
    case Cell::StepTime:
      return fmt::format("{}", timed(view) != nullptr ? timed(view)->step_seconds : 0);
    case Cell::TokensPerSecond:
      return fmt::format("{}", timed(view) != nullptr ? timed(view)->tokens_per_second : 0);
    case Cell::MillionTokens:
      return fmt::format("{}", cost_of(view, 1e6).value_or(Cost{}).price);
    case Cell::Epoch:
      return fmt::format("{}", cost_of_epoch(view).value_or(Cost{}).price);
    case Cell::Deviation: {
      double most = 0;
      for (const FigureCheck& check : view.verdict.figures)
        if (check.is_held()) most = std::max(most, std::abs(check.deviation()));
      return fmt::format("{}", most);
    }
    default:
      return "";
  }
}

std::string title_with_kind(const TableColumn& column, const std::vector<RowView>& views) {
  const bool is_memory =
      column.cell == Cell::Planned || column.cell == Cell::Measured || column.cell == Cell::Counted;
  const bool is_reserved = std::ranges::any_of(views, [&](const RowView& view) {
    const Figures* figures = figures_in(view, column.cell);
    return figures != nullptr && figures->peak_reserved > 0;
  });
  if (!is_memory || !is_reserved) return column.title;
  const std::string whose = column.cell == Cell::Planned ? "Planned"
                            : column.cell == Cell::Measured
                                ? "Measured"
                                : column.title.substr(0, column.title.find(','));
  return whose + ", reserved";
}

std::vector<TableColumn> table_columns(const LabRun& run, const std::vector<RowView>& views) {
  const std::string program = counted_program(run);
  const std::array all{TableColumn{Cell::Row, "Row", false},
                       TableColumn{Cell::Changes, "What changed", false},
                       TableColumn{Cell::Outcome, "Outcome", false},
                       TableColumn{Cell::Planned, "snug, planned", true},
                       TableColumn{Cell::Measured, "snug, measured", true},
                       TableColumn{Cell::Counted, program_words(program) + ", counted", true},
                       TableColumn{Cell::Published, source_title(run), true},
                       TableColumn{Cell::Deviation, "Deviation", true},
                       TableColumn{Cell::StepTime, "Step time", true},
                       TableColumn{Cell::TokensPerSecond, "Tokens/s", true},
                       TableColumn{Cell::MillionTokens, "1M tokens", true},
                       TableColumn{Cell::Epoch, "An epoch", true},
                       TableColumn{Cell::Verdict, "Verdict", false}};
  std::vector<TableColumn> out;
  for (const TableColumn& column : all) {
    const bool is_filled = std::any_of(views.begin(), views.end(), [&](const RowView& view) {
      const auto lines = cell_lines(view, column.cell);
      return std::any_of(lines.begin(), lines.end(), [](const auto& line) { return line != "–"; });
    });
    if (is_filled || column.cell == Cell::Row) out.push_back(column);
  }
  return out;
}

namespace {

int64_t value_of(const RowView& view) { return std::llround(view.row->value.value_or(0)); }

bool has_run_out(const std::vector<const RowView*>& tries, int64_t value) {
  return std::ranges::any_of(
      tries, [&](const RowView* view) { return ran_out(*view) && value_of(*view) == value; });
}

}  // namespace

std::vector<const RowView*> tries_of(const Group& search, const std::vector<RowView>& views) {
  std::vector<const RowView*> tries = members_of(search, views);
  std::erase_if(tries,
                [](const RowView* view) { return view->outcome.kind == OutcomeView::Kind::None; });
  std::ranges::stable_sort(tries, {}, [](const RowView* view) { return value_of(*view); });
  return tries;
}

bool is_answered(const Group& search, const std::vector<const RowView*>& tries) {
  const RowView* best = largest_that_fits(tries);
  if (best == nullptr) return has_run_out(tries, search.smallest);
  return value_of(*best) == search.largest || has_run_out(tries, value_of(*best) + 1);
}

std::string why_unanswered(const Group& search, const std::vector<const RowView*>& tries) {
  if (is_answered(search, tries)) return "";
  if (tries.empty()) return "not done with these options";
  for (const RowView* view : tries)
    if (view->outcome.kind == OutcomeView::Kind::Bad)
      return fmt::format("no answer, because {} ended as {}", value_text(search, *view),
                         view->outcome.words);
  return "no answer yet";
}

}  // namespace snug::lab
