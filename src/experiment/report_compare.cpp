// Two runs side by side, row by row: a plan beside a measurement, yesterday beside today.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "experiment/figures.h"
#include "experiment/reports.h"
#include "experiment/row_view.h"
#include "report/tables.h"
#include "report/text_width.h"

namespace snug::experiment {
namespace {

using nlohmann::json;

// One id in either run; a side that has no such row is null.
struct Pair {
  std::string id;
  const RowView* first = nullptr;
  const RowView* second = nullptr;
};

const RowView* find(const std::vector<RowView>& views, const std::string& id) {
  for (const RowView& view : views)
    if (view.row->id == id) return &view;
  return nullptr;
}

std::vector<Pair> pairs_of(const std::vector<RowView>& first, const std::vector<RowView>& second) {
  std::vector<Pair> out;
  for (const RowView& view : first)
    out.push_back({view.row->id, &view, find(second, view.row->id)});
  for (const RowView& view : second)
    if (find(first, view.row->id) == nullptr) out.push_back({view.row->id, nullptr, &view});
  return out;
}

double peak_of(const RowView* view) {
  return view == nullptr || view->own == nullptr ? 0
                                                 : static_cast<double>(view->own->peak_allocated);
}

double seconds_of(const RowView* view) {
  const bool has_time =
      view != nullptr && view->own != nullptr && view->outcome.kind == OutcomeView::Kind::Good;
  return has_time ? view->own->step_seconds : 0;
}

std::string change(double before, double after) {
  return before > 0 && after > 0 ? percent_text(after / before - 1) : "–";
}

std::string memory(const RowView* view) {
  return peak_of(view) > 0 ? memory_text(view->own->peak_allocated) : "–";
}
std::string time(const RowView* view) {
  return seconds_of(view) > 0 ? seconds_text(seconds_of(view)) : "–";
}

std::string outcomes(const Pair& pair) {
  const std::string before = pair.first == nullptr ? "not in it" : pair.first->outcome.words;
  const std::string after = pair.second == nullptr ? "not in it" : pair.second->outcome.words;
  return before == after ? before : before + " → " + after;
}

std::string heading(const char* which, const LabRun& run) {
  return fmt::format("{}  {}: {}, {}, snug {}\n", which, report::printable(run.folder.string()),
                     report::printable(run.record.title), mode_words(run), run.record.version);
}

json side_json(const RowView* view) {
  if (view == nullptr) return nullptr;
  return {{"outcome", name(view->result->outcome)},
          {"is_measured", is_measured(*view->result)},
          {"peak_allocated", peak_of(view)},
          {"step_seconds", seconds_of(view)},
          {"verdict", name(view->verdict.verdict)}};
}

json change_json(double before, double after) {
  if (before <= 0 || after <= 0) return nullptr;
  return after / before - 1;
}

}  // namespace

std::string compare_text(const LabRun& first, const LabRun& second, int width) {
  const std::vector<RowView> before = views_of(first), after = views_of(second);
  using Column = report::Table::Column;
  report::Table table({Column{"Row", report::Align::Left}, Column{"Outcome", report::Align::Left},
                       Column{"Peak, A"}, Column{"B"}, Column{"change"}, Column{"A step, A"},
                       Column{"B"}, Column{"change"}});
  size_t both = 0;
  const std::vector<Pair> pairs = pairs_of(before, after);
  for (const Pair& pair : pairs) {
    if (pair.first != nullptr && pair.second != nullptr) ++both;
    table.add_row({report::fit_columns(report::printable(pair.id),
                                       static_cast<size_t>(std::max(width / 3, 16))),
                   outcomes(pair), memory(pair.first), memory(pair.second),
                   change(peak_of(pair.first), peak_of(pair.second)), time(pair.first),
                   time(pair.second), change(seconds_of(pair.first), seconds_of(pair.second))});
  }
  return heading("A", first) + heading("B", second) + "\n" + table.render() +
         fmt::format("\n{} row{}, {} in both\n", pairs.size(), pairs.size() == 1 ? "" : "s", both);
}

std::string compare_json(const LabRun& first, const LabRun& second) {
  const std::vector<RowView> before = views_of(first), after = views_of(second);
  json rows = json::array();
  for (const Pair& pair : pairs_of(before, after))
    rows.push_back({{"id", pair.id},
                    {"first", side_json(pair.first)},
                    {"second", side_json(pair.second)},
                    {"memory_change", change_json(peak_of(pair.first), peak_of(pair.second))},
                    {"time_change", change_json(seconds_of(pair.first), seconds_of(pair.second))}});
  const auto run_of = [](const LabRun& run) {
    return json{{"folder", run.folder.string()},
                {"suite", run.record.suite},
                {"mode", name(run.mode)},
                {"version", run.record.version},
                {"device", run.record.device}};
  };
  const json out{
      {"schema", 1}, {"first", run_of(first)}, {"second", run_of(second)}, {"rows", rows}};
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace snug::experiment
