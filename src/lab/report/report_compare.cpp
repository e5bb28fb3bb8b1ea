// Two runs side by side, row by row: a plan beside a measurement, yesterday beside today.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "lab/report/figures.h"
#include "lab/report/reports.h"
#include "lab/report/row_view.h"
#include "report/tables.h"
#include "report/text_width.h"

namespace snug::lab {
namespace {

using nlohmann::json;

// The rows with one id in both runs; null if a run has none.
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

// One of the two runs, and whether its memory is reserved or allocated: reserved if both have it.
struct Side {
  const LabRun& run;
  bool is_reserved = false;

  int64_t bytes(const RowView* view) const {
    if (view == nullptr || view->own == nullptr) return 0;
    return is_reserved ? needed_bytes(*view->own) : view->own->peak_allocated;
  }
  // A row that did not run to its end has a plan's peak, also in a run.
  bool is_only_planned(const RowView* view) const {
    return run.mode != Mode::Plan && bytes(view) > 0 && !is_measured(*view->result);
  }
  std::string memory(const RowView* view) const {
    if (bytes(view) <= 0) return "–";
    return memory_text(bytes(view)) + (is_only_planned(view) ? " planned" : "");
  }
};

std::string change(double before, double after) {
  return before > 0 && after > 0 ? percent_text(after / before - 1) : "–";
}

std::string time(const RowView* view) {
  return seconds_of(view) > 0 ? seconds_text(seconds_of(view)) : "–";
}

std::string outcomes(const Pair& pair) {
  const std::string before = pair.first == nullptr ? "not in it" : pair.first->outcome.words;
  std::string after = pair.second == nullptr ? "not in it" : pair.second->outcome.words;
  const auto is_good = [](const RowView* view) {
    return view != nullptr && view->outcome.kind == OutcomeView::Kind::Good;
  };
  // What is planned fits, and what ran is ok: that is no change.
  if (before == after || (is_good(pair.first) && is_good(pair.second))) return after;
  return before + " → " + after;
}

std::string heading(const char* which, const LabRun& run) {
  return fmt::format("{}  {}: {}, {}, snug {}\n", which, printable(run.folder.string()),
                     printable(run.record.title), mode_words(run), run.record.version);
}

// "78.6 GiB", "26.0 to 40.0 MiB": what rows had.
std::string limits_text(const LabRun& run) {
  int64_t least = 0, most = 0;
  for (const RowResult& result : run.results) {
    if (result.limit_bytes <= 0) continue;
    least = least == 0 ? result.limit_bytes : std::min(least, result.limit_bytes);
    most = std::max(most, result.limit_bytes);
  }
  if (most == 0) return "not known";
  return least == most ? memory_text(most) : memory_text(least) + " to " + memory_text(most);
}

// The differences between the two runs, before any figures.
std::string differences(const LabRun& first, const LabRun& second) {
  std::string out;
  const auto add = [&](const char* what, const std::string& before, const std::string& after) {
    if (before != after)
      out += fmt::format("{}: {} in A, {} in B\n", what, printable(before), printable(after));
  };
  add("Suite", first.record.suite, second.record.suite);
  add("Mode", name(first.mode), name(second.mode));
  add("Device", first.record.device, second.record.device);
  add("Available memory", limits_text(first), limits_text(second));
  add("snug", first.record.version, second.record.version);
  std::map<std::string, std::string> versions = first.record.versions;
  versions.insert(second.record.versions.begin(), second.record.versions.end());
  const auto version_in = [](const LabRun& run, const std::string& what) {
    const auto found = run.record.versions.find(what);
    return found == run.record.versions.end() ? std::string("none") : found->second;
  };
  for (const auto& [what, ignored] : versions)
    if (what != "snug") add(what.c_str(), version_in(first, what), version_in(second, what));
  return out.empty() ? "" : out + "\n";
}

bool are_same_size(const LabRun& first, const LabRun& second) {
  return is_full_size(first) == is_full_size(second);
}

bool knows_reserved(const std::vector<RowView>& views) {
  return std::ranges::any_of(views, [](const RowView& v) { return v.own != nullptr; }) &&
         std::ranges::none_of(views, [](const RowView& view) {
           return view.own != nullptr && view.own->peak_reserved <= 0;
         });
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

size_t rows_in_both(const LabRun& first, const LabRun& second) {
  return static_cast<size_t>(std::ranges::count_if(
      first.rows, [&](const Row& row) { return second.find_row(row.id) != nullptr; }));
}

std::string compare_text(const LabRun& first, const LabRun& second, int width) {
  const std::vector<RowView> before = views_of(first), after = views_of(second);
  const bool is_reserved = knows_reserved(before) && knows_reserved(after);
  const Side a{first, is_reserved}, b{second, is_reserved};
  using Column = report::Table::Column;
  const std::string peak = is_reserved ? "Reserved, A" : "Peak, A";
  report::Table table({Column{"Row", report::Align::Left}, Column{"Outcome", report::Align::Left},
                       Column{peak}, Column{"B"}, Column{"change"}, Column{"Step time, A"},
                       Column{"B"}, Column{"change"}});
  const std::vector<Pair> pairs = pairs_of(before, after);
  const bool is_same_size = are_same_size(first, second);
  const auto name_columns = static_cast<size_t>(width > 0 ? std::max(width / 3, 16) : 120);
  for (const Pair& pair : pairs) {
    const bool one_is_planned = a.is_only_planned(pair.first) != b.is_only_planned(pair.second);
    const bool compares = is_same_size && !one_is_planned;
    const auto bytes = [&](const Side& side, const RowView* view) {
      return compares ? static_cast<double>(side.bytes(view)) : 0;
    };
    table.add_row({report::fit_columns(printable(pair.id), name_columns), outcomes(pair),
                   a.memory(pair.first), b.memory(pair.second),
                   change(bytes(a, pair.first), bytes(b, pair.second)), time(pair.first),
                   time(pair.second),
                   is_same_size ? change(seconds_of(pair.first), seconds_of(pair.second)) : "–"});
  }
  std::string out = heading("A", first) + heading("B", second) + "\n" + differences(first, second);
  if (!is_same_size)
    out += "One of the runs is scaled down to other models, so only outcomes can be compared.\n\n";
  return out + table.render() +
         fmt::format("\n{} row{}, {} in both\n", pairs.size(), pairs.size() == 1 ? "" : "s",
                     rows_in_both(first, second));
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

}  // namespace snug::lab
