// SPDX-License-Identifier: Apache-2.0
#include "plan/command/plan_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/bytes.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "engine/strategy.h"
#include "plan/command/planned.h"
#include "plan/command/prices.h"
#include "recipe/check.h"
#include "recipe/parse.h"
#include "report/charts/charts.h"
#include "report/html_page.h"
#include "report/tables.h"

namespace snug::plan {
namespace {

constexpr size_t kMostCells = 1024;

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) parts.push_back(part);
  if (text.ends_with(by)) parts.emplace_back();
  return parts;
}

std::optional<double> number_in(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// 1:16 is 1, 2, 4, 8, 16; any other text is itself.
std::vector<std::string> values_of(const std::string& text, const std::string& whole) {
  const std::vector<std::string> ends = split(text, ':');
  if (ends.size() != 2) return {text};
  const auto first = number_in(ends[0]), last = number_in(ends[1]);
  if (!first || !last) return {text};
  if (!(*first >= 1) || !(*last >= *first) || !(*last <= 1e15) || *first != std::floor(*first))
    throw UserError(
        "--sweep {}: {} is no range; 1:16 is 1, 2, 4, 8, 16 (whole numbers from 1, the second not "
        "below the first)",
        whole, text);
  std::vector<std::string> values;
  for (double value = *first; value <= *last; value *= 2)
    values.push_back(fmt::format("{:.0f}", value));
  return values;
}

// One combination.
struct Cell {
  std::vector<std::string> values;  // by axis
  std::string refused;              // why it cannot be planned; empty: it can
  bool fits = false;
  int64_t bytes = 0;         // on the device
  int64_t device_bytes = 0;  // that a run can use
  std::string device;
  double tokens_per_second = 0, step_seconds = 0;
  double million_tokens_price = 0;
  std::string currency;
};

// The recipe of one combination, planned. Like the command line's own, but for faults, which are
// the cell's.
Cell cell_of(const std::vector<std::string>& words, const std::vector<SweepAxis>& axes,
             std::vector<std::string> values) {
  std::vector<std::string> all = words;
  for (size_t a = 0; a < axes.size(); ++a)
    for (const std::string& key : axes[a].keys) {
      all.push_back("--" + key);
      all.push_back(values[a]);
    }
  Cell cell{.values = std::move(values)};
  try {
    const recipe::ParsedCommand parsed = recipe::parse_command_line(all);
    recipe::check_recipe(parsed.command, parsed.recipe);
    Planned p{.recipe = parsed.recipe};
    plan_recipe(p, parsed.plan);
    const StepCost& cost = p.wanted.cost;
    cell.fits = p.wanted_fits();
    cell.bytes = p.need();
    cell.device_bytes = p.device.usable_bytes();
    cell.device = p.device.name;
    cell.tokens_per_second = cost.tokens_per_second();
    cell.step_seconds = cost.seconds();
    cell.currency = p.price.currency;
    if (p.price.per_hour > 0 && cell.tokens_per_second > 0)
      cell.million_tokens_price =
          p.price.of(1e6 / cell.tokens_per_second, engine::named_ranks(p.recipe));
  } catch (const UserError& error) {
    cell.refused = error.what();
  }
  return cell;
}

struct Sweep {
  std::vector<SweepAxis> axes;
  std::vector<Cell> cells = {};    // the last axis runs fastest
  bool prices_can_differ = false;  // each kind of device has its own

  size_t columns() const { return axes.size() > 1 ? axes[1].values.size() : 1; }
  const Cell& at(size_t row, size_t column) const { return cells[row * columns() + column]; }
};

// What stands below the table, by number.
size_t note_of(std::vector<std::string>& notes, const std::string& text) {
  const auto found = std::ranges::find(notes, text);
  if (found == notes.end()) notes.push_back(text);
  return static_cast<size_t>(std::ranges::find(notes, text) - notes.begin()) + 1;
}

std::string cell_text(const Cell& cell, std::vector<std::string>& notes) {
  if (!cell.refused.empty()) return fmt::format("refused [{}]", note_of(notes, cell.refused));
  if (!cell.fits) return fmt::format("({})", format_bytes(cell.bytes));
  return fmt::format("{}  {}/s", format_bytes(cell.bytes),
                     with_commas(static_cast<long long>(cell.tokens_per_second)));
}

// One axis: a line for each value, with all that is known of it.
report::Table table_of_one(const Sweep& sweep, std::vector<std::string>& notes) {
  using report::Align;
  const bool priced =
      std::ranges::any_of(sweep.cells, [](const Cell& c) { return c.million_tokens_price > 0; });
  std::vector<report::Table::Column> columns = {
      {sweep.axes[0].name(), Align::Left}, {"peak"}, {"to spare"}, {"s/step"}, {"tokens/s"}};
  if (priced) columns.push_back({"a million tokens"});
  report::Table table(columns);
  for (const Cell& c : sweep.cells) {
    if (!c.refused.empty()) {
      table.add_row({c.values[0], cell_text(c, notes)});
      continue;
    }
    std::vector<std::string> row = {
        c.values[0], format_bytes(c.bytes),
        c.fits ? format_bytes(c.device_bytes - c.bytes) : "does not fit",
        fmt::format("{:.3g}", c.step_seconds),
        with_commas(static_cast<long long>(c.tokens_per_second))};
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
std::string limit_among(const std::vector<const Cell*>& cells, const SweepAxis& axis, size_t a) {
  const Cell* best = nullptr;
  for (const Cell* cell : cells) {
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
    std::vector<const Cell*> cells;
    for (const Cell& cell : sweep.cells)
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

std::string place_of(const Sweep& sweep, const Cell& cell) {
  std::vector<std::string> parts;
  for (size_t a = 0; a < sweep.axes.size(); ++a)
    parts.push_back(sweep.axes[a].name() + " " + cell.values[a]);
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The first that could be planned; null: none.
const Cell* first_planned(const Sweep& sweep) {
  const auto found =
      std::ranges::find_if(sweep.cells, [](const Cell& c) { return c.refused.empty(); });
  return found == sweep.cells.end() ? nullptr : &*found;
}

bool has_one_device(const Sweep& sweep) {
  const Cell* first = first_planned(sweep);
  return first != nullptr && std::ranges::all_of(sweep.cells, [&](const Cell& c) {
           return !c.refused.empty() || c.device == first->device;
         });
}

std::string device_text(const Sweep& sweep) {
  if (!has_one_device(sweep)) return "several devices";
  const Cell& first = *first_planned(sweep);
  return fmt::format("{}, of which a run can use {}", first.device,
                     format_bytes(first.device_bytes));
}

std::string best_text(const Sweep& sweep) {
  const auto first_of = [&](const auto& comes_before, const char* title, const auto& figure) {
    const Cell* best = nullptr;
    for (const Cell& cell : sweep.cells)
      if (cell.fits && (best == nullptr || comes_before(cell, *best))) best = &cell;
    return best == nullptr
               ? ""
               : fmt::format("{}: {}, {}\n", title, place_of(sweep, *best), figure(*best));
  };
  std::string text = first_of(
      [](const Cell& a, const Cell& b) { return a.tokens_per_second > b.tokens_per_second; },
      "Fastest that fits",
      [](const Cell& c) {
        return fmt::format("about {} tokens/s",
                           with_commas(static_cast<long long>(c.tokens_per_second)));
      });
  // One price for different devices says nothing about which is cheapest.
  const bool is_one_device = has_one_device(sweep);
  const bool is_priced = std::ranges::all_of(
      sweep.cells, [](const Cell& c) { return !c.fits || c.million_tokens_price > 0; });
  if (is_priced && (is_one_device || sweep.prices_can_differ))
    text += first_of([](const Cell& a,
                        const Cell& b) { return a.million_tokens_price < b.million_tokens_price; },
                     "Cheapest that fits",
                     [](const Cell& c) {
                       return "a million tokens for " +
                              recipe::money_text(c.million_tokens_price, c.currency);
                     });
  return text;
}

constexpr const char* kHowToRead =
    "Peak memory on the device; in brackets what does not fit. Tokens a second are an estimate.";

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
  for (const Cell& c : sweep.cells) {
    nlohmann::json cell{{"values", c.values}, {"fits", c.fits}};
    if (!c.refused.empty()) {
      cell["refused"] = c.refused;
    } else {
      cell["device"] = c.device;
      cell["peak"] = c.bytes;
      cell["usable"] = c.device_bytes;
      cell["tokens_per_second"] = c.tokens_per_second;
      cell["step_seconds"] = c.step_seconds;
      if (c.million_tokens_price > 0) cell["million_tokens_price"] = c.million_tokens_price;
    }
    cells.push_back(cell);
  }
  return {{"axes", axes}, {"cells", cells}};
}

// A line for each value of the second axis over the numbers of the first.
std::string chart_of(const Sweep& sweep, const char* title, const char* unit, double limit,
                     const std::function<double(const Cell&)>& figure) {
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
      if (const Cell& cell = sweep.at(row, column); cell.refused.empty())
        series.points.emplace_back(chart.x_ticks[row], figure(cell));
    chart.series.push_back(series);
  }
  return report::line_chart(chart);
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
                    [](const Cell& c) { return static_cast<double>(c.bytes) / kGiB; }));
  page.add(chart_of(sweep, "Tokens a second", "tokens/s", 0,
                    [](const Cell& c) { return c.tokens_per_second; }));
  return page.html();
}

}  // namespace

std::string SweepAxis::name() const {
  std::vector<std::string> names;
  for (const std::string& key : keys) names.push_back(key.substr(key.rfind('.') + 1));
  return fmt::format("{}", fmt::join(names, "+"));
}

std::vector<SweepAxis> read_sweep(const std::string& text) {
  std::vector<SweepAxis> axes;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    const size_t equals = word.find('=');
    SweepAxis axis;
    if (equals != std::string::npos) {
      axis.keys = split(word.substr(0, equals), '+');
      for (const std::string& part : split(word.substr(equals + 1), ','))
        for (std::string& value : values_of(part, text)) axis.values.push_back(std::move(value));
    }
    const auto is_empty = [](const std::string& part) { return part.empty(); };
    if (axis.keys.empty() || axis.values.empty() || std::ranges::any_of(axis.keys, is_empty) ||
        std::ranges::any_of(axis.values, is_empty))
      throw UserError(
          "--sweep {}: {} is no KEY=VALUE,VALUE,…; as in --sweep \"train.micro_batch_size=1,2,4 "
          "train.max_seq_length=512:4096\"",
          text, word);
    for (const std::string& key : axis.keys)
      if (key == "sweep" || key == "config" || key == "html" || key == "json")
        throw UserError("--sweep {}: {} is not an option that can run through values", text, key);
    axes.push_back(std::move(axis));
  }
  if (axes.empty() || axes.size() > 2)
    throw UserError("--sweep {}: one option or two can run through values, not {}", text,
                    axes.size());
  const size_t cells = axes[0].values.size() * (axes.size() > 1 ? axes[1].values.size() : 1);
  if (cells > kMostCells)
    throw UserError("--sweep {}: {} combinations; {} at most", text, cells, kMostCells);
  return axes;
}

void plan_sweep(const recipe::PlanOptions& options, const std::vector<std::string>& words) {
  Sweep sweep{.axes = read_sweep(options.sweep),
              .prices_can_differ = is_price_list(options.price_per_hour)};
  for (const std::string& first : sweep.axes[0].values)
    if (sweep.axes.size() == 1)
      sweep.cells.push_back(cell_of(words, sweep.axes, {first}));
    else
      for (const std::string& second : sweep.axes[1].values)
        sweep.cells.push_back(cell_of(words, sweep.axes, {first, second}));
  if (std::ranges::none_of(sweep.cells, [](const Cell& c) { return c.refused.empty(); }))
    throw UserError("{}", sweep.cells.front().refused);
  const std::string text = options.json ? sweep_json(sweep).dump(2) + "\n" : sweep_text(sweep);
  std::fputs(text.c_str(), stdout);
  if (!options.html.empty()) {
    write_file_atomically(options.html, sweep_html(sweep));
    if (!options.json) std::printf("\nThe page is %s\n", options.html.c_str());
  }
  if (std::ranges::none_of(sweep.cells, &Cell::fits))
    throw OutOfMemory("none of these combinations fits");
}

}  // namespace snug::plan
