// SPDX-License-Identifier: Apache-2.0
#include "plan/command/sweep_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/text.h"
#include "recipe/numbers.h"
#include "report/charts/charts.h"
#include "report/html_page.h"
#include "report/tables.h"

namespace snug::plan {
namespace {

// What stands below the table, by number.
size_t note_of(std::vector<std::string>& notes, const std::string& text) {
  const auto found = std::ranges::find(notes, text);
  if (found == notes.end()) notes.push_back(text);
  return static_cast<size_t>(std::ranges::find(notes, text) - notes.begin()) + 1;
}

std::string cell_text(const SweepCell& cell, std::vector<std::string>& notes) {
  if (!cell.refused.empty()) return fmt::format("refused [{}]", note_of(notes, cell.refused));
  if (!cell.fits) return fmt::format("({})", format_bytes(cell.bytes));
  return fmt::format("{}  {}/s", format_bytes(cell.bytes),
                     with_commas(static_cast<long long>(cell.tokens_per_second)));
}

// One axis: a line for each value, with all that is known of it.
report::Table table_of_one(const Sweep& sweep, std::vector<std::string>& notes) {
  using report::Align;
  const bool priced = std::ranges::any_of(
      sweep.cells, [](const SweepCell& c) { return c.million_tokens_price > 0; });
  std::vector<report::Table::Column> columns = {
      {sweep.axes[0].name(), Align::Left}, {"peak"}, {"to spare"}, {"s/step"}, {"tokens/s"}};
  if (sweep.machine_devices > 0)
    columns.push_back({fmt::format("runs on {} devices", sweep.machine_devices)});
  if (priced) columns.push_back({"a million tokens"});
  report::Table table(columns);
  for (const SweepCell& c : sweep.cells) {
    if (!c.refused.empty()) {
      table.add_row({c.values[0], cell_text(c, notes)});
      continue;
    }
    std::vector<std::string> row = {
        c.values[0], format_bytes(c.bytes),
        c.fits ? format_bytes(c.device_bytes - c.bytes) : "does not fit",
        fmt::format("{:.3g}", c.step_seconds),
        with_commas(static_cast<long long>(c.tokens_per_second))};
    if (sweep.machine_devices > 0) row.push_back(fmt::format("{}", c.side_by_side));
    if (priced)
      row.push_back(
          c.million_tokens_price > 0 ? recipe::money_text(c.million_tokens_price, c.currency) : "");
    table.add_row(row);
  }
  return table;
}

report::Table table_of_two(const Sweep& sweep, std::vector<std::string>& notes) {
  std::vector<report::Table::Column> columns = {
      {sweep.axes[0].name() + " \\ " + sweep.axes[1].name(), report::Align::Left}};
  for (const std::string& value : sweep.axes[1].values) columns.push_back({value});
  report::Table table(columns);
  for (size_t row = 0; row < sweep.axes[0].values.size(); ++row) {
    std::vector<std::string> cells = {sweep.axes[0].values[row]};
    for (size_t column = 0; column < sweep.columns(); ++column)
      cells.push_back(cell_text(sweep.at(row, column), notes));
    table.add_row(cells);
  }
  return table;
}

bool is_numeric(const SweepAxis& axis) {
  return std::ranges::all_of(axis.values,
                             [](const std::string& value) { return number_in(value).has_value(); });
}

// The largest number, or the smallest device, among cells that fit; empty: none of them.
std::string limit_among(const std::vector<const SweepCell*>& cells, const SweepAxis& axis,
                        size_t a) {
  const SweepCell* best = nullptr;
  for (const SweepCell* cell : cells) {
    if (!cell->fits) continue;
    const bool is_better =
        best == nullptr ||
        (is_numeric(axis) ? *number_in(cell->values[a]) > *number_in(best->values[a])
                          : cell->device_bytes < best->device_bytes);
    if (is_better) best = cell;
  }
  return best == nullptr ? "" : best->values[a];
}

// "Largest max_seq_length that fits, by micro_batch_size: 1: 8192, 2: 4096, 4: none".
std::string limits_text(const Sweep& sweep) {
  const size_t last = sweep.axes.size() - 1;
  const SweepAxis& axis = sweep.axes[last];
  const bool is_device = std::ranges::find(axis.keys, "device") != axis.keys.end();
  if (!is_numeric(axis) && !is_device) return "";
  std::string text =
      fmt::format("{} {} that fits", is_device ? "Smallest" : "Largest", axis.name());
  const auto limit = [&](size_t row) {
    std::vector<const SweepCell*> cells;
    for (const SweepCell& cell : sweep.cells)
      if (last == 0 || cell.values[0] == sweep.axes[0].values[row]) cells.push_back(&cell);
    const std::string found = limit_among(cells, axis, last);
    return found.empty() ? "none" : found;
  };
  if (last == 0) return text + ": " + limit(0) + "\n";
  std::vector<std::string> rows;
  for (size_t row = 0; row < sweep.axes[0].values.size(); ++row)
    rows.push_back(fmt::format("{}: {}", sweep.axes[0].values[row], limit(row)));
  return fmt::format("{}, by {}:  {}\n", text, sweep.axes[0].name(), fmt::join(rows, "  "));
}

std::string place_of(const Sweep& sweep, const SweepCell& cell) {
  std::vector<std::string> parts;
  for (size_t a = 0; a < sweep.axes.size(); ++a)
    parts.push_back(sweep.axes[a].name() + " " + cell.values[a]);
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The first that could be planned; null: none.
const SweepCell* first_planned(const Sweep& sweep) {
  const auto found =
      std::ranges::find_if(sweep.cells, [](const SweepCell& c) { return c.refused.empty(); });
  return found == sweep.cells.end() ? nullptr : &*found;
}

bool has_one_device(const Sweep& sweep) {
  const SweepCell* first = first_planned(sweep);
  return first != nullptr && std::ranges::all_of(sweep.cells, [&](const SweepCell& c) {
           return !c.refused.empty() || c.device == first->device;
         });
}

std::string device_text(const Sweep& sweep) {
  if (!has_one_device(sweep)) return "several devices";
  const SweepCell& first = *first_planned(sweep);
  return fmt::format("{}, of which a run can use {}", first.device,
                     format_bytes(first.device_bytes));
}

std::string best_text(const Sweep& sweep) {
  const auto first_of = [&](const auto& comes_before, const char* title, const auto& figure) {
    const SweepCell* best = nullptr;
    for (const SweepCell& cell : sweep.cells)
      if (cell.fits && (best == nullptr || comes_before(cell, *best))) best = &cell;
    return best == nullptr
               ? ""
               : fmt::format("{}: {}, {}\n", title, place_of(sweep, *best), figure(*best));
  };
  std::string text =
      first_of([](const SweepCell& a,
                  const SweepCell& b) { return a.tokens_per_second > b.tokens_per_second; },
               "Fastest that fits",
               [](const SweepCell& c) {
                 return fmt::format("about {} tokens/s",
                                    with_commas(static_cast<long long>(c.tokens_per_second)));
               });
  // One price for different devices says nothing about which is cheapest.
  const bool is_one_device = has_one_device(sweep);
  const bool is_priced = std::ranges::all_of(
      sweep.cells, [](const SweepCell& c) { return !c.fits || c.million_tokens_price > 0; });
  if (is_priced && (is_one_device || sweep.prices_can_differ))
    text += first_of(
        [](const SweepCell& a, const SweepCell& b) {
          return a.million_tokens_price < b.million_tokens_price;
        },
        "Cheapest that fits",
        [](const SweepCell& c) {
          return "a million tokens for " + recipe::money_text(c.million_tokens_price, c.currency);
        });
  return text;
}

constexpr const char* kHowToRead =
    "Peak memory on the device; in brackets what does not fit. Tokens a second are an estimate.";

// A line for each value of the second axis over the numbers of the first.
std::string chart_of(const Sweep& sweep, const char* title, const char* unit, double limit,
                     const std::function<double(const SweepCell&)>& figure) {
  constexpr size_t kMostLines = 8;
  if (!is_numeric(sweep.axes[0])) return "";
  report::LineChart chart{.title = title,
                          .unit = unit,
                          .series = {},
                          .from_zero = true,
                          .x_label = sweep.axes[0].name(),
                          .logarithmic_x = true,
                          .limit = limit,
                          .has_style = false};
  for (const std::string& value : sweep.axes[0].values) {
    chart.x_ticks.push_back(*number_in(value));
    chart.logarithmic_x &= chart.x_ticks.back() > 0;
  }
  for (size_t column = 0; column < std::min(sweep.columns(), kMostLines); ++column) {
    report::Series series{.name = sweep.axes.size() > 1
                                      ? sweep.axes[1].name() + " " + sweep.axes[1].values[column]
                                      : "",
                          .colour_class = fmt::format("c{}", column),
                          .look = report::Series::Look::Dots,
                          .points = {}};
    for (size_t row = 0; row < sweep.axes[0].values.size(); ++row)
      if (const SweepCell& cell = sweep.at(row, column); cell.refused.empty())
        series.points.emplace_back(chart.x_ticks[row], figure(cell));
    chart.series.push_back(series);
  }
  return report::line_chart(chart);
}

}  // namespace

std::optional<double> number_in(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string sweep_text(const Sweep& sweep) {
  std::vector<std::string> notes;
  const report::Table table =
      sweep.axes.size() == 1 ? table_of_one(sweep, notes) : table_of_two(sweep, notes);
  std::string text =
      fmt::format("Sweep    {}\n{}\n\n{}\n", device_text(sweep), kHowToRead, table.render());
  text += limits_text(sweep) + best_text(sweep);
  for (size_t i = 0; i < notes.size(); ++i) text += fmt::format("[{}] {}\n", i + 1, notes[i]);
  return text;
}

nlohmann::json sweep_json(const Sweep& sweep) {
  nlohmann::json axes = nlohmann::json::array(), cells = nlohmann::json::array();
  for (const SweepAxis& axis : sweep.axes)
    axes.push_back({{"keys", axis.keys}, {"values", axis.values}});
  for (const SweepCell& c : sweep.cells) {
    nlohmann::json cell{{"values", c.values}, {"fits", c.fits}};
    if (!c.refused.empty()) {
      cell["refused"] = c.refused;
    } else {
      cell["device"] = c.device;
      cell["peak"] = c.bytes;
      cell["usable"] = c.device_bytes;
      cell["tokens_per_second"] = c.tokens_per_second;
      cell["step_seconds"] = c.step_seconds;
      if (sweep.machine_devices > 0) cell["side_by_side"] = c.side_by_side;
      if (c.million_tokens_price > 0) cell["million_tokens_price"] = c.million_tokens_price;
    }
    cells.push_back(cell);
  }
  return {{"axes", axes}, {"cells", cells}};
}

std::string sweep_html(const Sweep& sweep) {
  using report::element;
  std::vector<std::string> notes;
  const report::Table table =
      sweep.axes.size() == 1 ? table_of_one(sweep, notes) : table_of_two(sweep, notes);
  report::HtmlPage page("Sweep", {report::assets::run_css, report::assets::chart_css});
  std::string below = limits_text(sweep) + best_text(sweep);
  for (size_t i = 0; i < notes.size(); ++i) below += fmt::format("[{}] {}\n", i + 1, notes[i]);
  page.add(element("h1", "Sweep: " + device_text(sweep))).add(element("p", kHowToRead));
  page.add(table.html()).add(element("pre", below));
  const double limit =
      has_one_device(sweep) ? static_cast<double>(first_planned(sweep)->device_bytes) / kGiB : 0;
  page.add(chart_of(sweep, "Peak memory", "GiB", limit,
                    [](const SweepCell& c) { return static_cast<double>(c.bytes) / kGiB; }));
  page.add(chart_of(sweep, "Tokens a second", "tokens/s", 0,
                    [](const SweepCell& c) { return c.tokens_per_second; }));
  return page.html();
}

}  // namespace snug::plan
