// SPDX-License-Identifier: Apache-2.0
#include "report/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "report/html_page.h"
#include "report/text_width.h"

namespace snug::report {
namespace {

constexpr std::string_view kGap = "  ";

std::string aligned(const std::string& text, size_t width, Align align) {
  const std::string padding(width - std::min(width, display_width(text)), ' ');
  return align == Align::Left ? text + padding : padding + text;
}

std::string without_trailing_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// One unit for a whole table, so that its figures compare at a glance.
struct Unit {
  std::string_view name;
  double bytes;
};

Unit unit_for(int64_t largest) {
  if (largest >= kGiB) return {"GiB", static_cast<double>(kGiB)};
  if (largest >= kMiB) return {"MiB", static_cast<double>(kMiB)};
  return {"KiB", static_cast<double>(kKiB)};
}

std::string in_unit(int64_t bytes, const Unit& unit) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / unit.bytes);
}

struct MemoryColumn {
  const char* title;
  int64_t PhaseRecord::*bytes;
  bool always;
};

constexpr MemoryColumn kMemoryColumns[] = {
    {"Params", &PhaseRecord::parameters, true},
    {"Grads", &PhaseRecord::gradients, true},
    {"Optim", &PhaseRecord::optimizer_device, true},
    {"Optim host", &PhaseRecord::optimizer_host, false},
    {"Acts", &PhaseRecord::activations, true},
    {"Work", &PhaseRecord::workspace, true},
    {"Comm", &PhaseRecord::communication, false},
    {"Data", &PhaseRecord::data, false},
    {"Allocated", &PhaseRecord::allocated, true},
    {"Peak", &PhaseRecord::peak, true},
    {"Reserved", &PhaseRecord::reserved, true},
};

// The rare columns appear only where a figure would show as more than 0.00.
std::vector<MemoryColumn> columns_with_figures(std::span<const PhaseRecord> phases,
                                               const Unit& unit) {
  std::vector<MemoryColumn> columns;
  for (const MemoryColumn& column : kMemoryColumns) {
    const auto filled = [&](const PhaseRecord& p) {
      return static_cast<double>(p.*column.bytes) >= 0.005 * unit.bytes;
    };
    if (column.always || std::any_of(phases.begin(), phases.end(), filled))
      columns.push_back(column);
  }
  return columns;
}

std::string bar_of(double share, int columns) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * columns * 8));
  std::string out;
  for (int i = 0; i < eighths / 8; ++i) out += "█";
  out += kEighths[eighths % 8];
  return out.empty() && share > 0 ? "▏" : out;
}

const char* colour_of(const std::string& category) {
  if (category.starts_with("param")) return "34";
  if (category.starts_with("grad")) return "33";
  if (category.starts_with("optim")) return "35";
  if (category.starts_with("act")) return "32";
  return "36";
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  SNUG_CHECK(cells.size() <= columns_.size(), "{} cells for {} columns", cells.size(),
             columns_.size());
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::render() const {
  std::vector<std::string> titles, rules;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = display_width(titles[i]);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i]));
    widths.push_back(width);
    std::string rule;
    for (size_t k = 0; k < width; ++k) rule += "─";
    rules.push_back(rule);
  }
  std::string out;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) line += kGap;
      line += aligned(cells[i], widths[i], columns_[i].align);
    }
    out += without_trailing_spaces(std::move(line));
  };
  add(titles);
  add(rules);
  for (const auto& row : rows_) add(row);
  return out;
}

std::string Table::html() const {
  std::string out = "<table><tr>";
  for (const Column& column : columns_) out += "<th>" + xml_escape(column.title) + "</th>";
  out += "</tr>";
  for (const std::vector<std::string>& row : rows_) {
    out += "<tr>";
    for (const std::string& cell : row) out += "<td>" + xml_escape(cell) + "</td>";
    out += "</tr>";
  }
  return out + "</table>";
}

std::string memory_table(std::span<const PhaseRecord> phases) {
  int64_t largest = 0;
  for (const PhaseRecord& phase : phases)
    for (const MemoryColumn& column : kMemoryColumns)
      largest = std::max(largest, phase.*column.bytes);
  const Unit unit = unit_for(largest);
  const std::vector<MemoryColumn> columns = columns_with_figures(phases, unit);
  std::vector<Table::Column> titles{{"Step"}, {fmt::format("Phase ({})", unit.name), Align::Left}};
  for (const MemoryColumn& column : columns) titles.push_back({column.title});
  Table table(std::move(titles));
  int64_t last_step = -1;
  for (const PhaseRecord& phase : phases) {
    std::vector<std::string> row{phase.step == last_step ? "" : std::to_string(phase.step),
                                 phase.phase};
    for (const MemoryColumn& column : columns) row.push_back(in_unit(phase.*column.bytes, unit));
    table.add_row(std::move(row));
    last_step = phase.step;
  }
  return table.render();
}

std::string memory_bars(const std::map<std::string, int64_t>& by_category,
                        const BarOptions& options) {
  std::vector<std::pair<std::string, int64_t>> bars;
  int64_t sum = 0;
  size_t name_width = 0;
  for (const auto& [name, bytes] : by_category) {
    if (bytes <= 0) continue;
    bars.emplace_back(printable(name), bytes);
    sum += bytes;
    name_width = std::max(name_width, display_width(bars.back().first));
  }
  if (bars.empty()) return "";
  std::stable_sort(bars.begin(), bars.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr int kFigures = 22;  // "  1023.99 MiB  100.0%"
  const int room = std::max(options.width - static_cast<int>(name_width) - kFigures, 8);
  const int64_t full =
      options.budget_bytes > 0 ? std::max(options.budget_bytes, bars[0].second) : bars[0].second;
  std::string out;
  for (const auto& [name, bytes] : bars) {
    std::string drawn = bar_of(static_cast<double>(bytes) / static_cast<double>(full), room);
    const std::string padding(static_cast<size_t>(room) - display_width(drawn), ' ');
    if (options.colours) drawn = fmt::format("\x1b[{}m{}\x1b[0m", colour_of(name), drawn);
    out += fmt::format("{} {}{} {:>11} {:>6.1f}%\n", aligned(name, name_width, Align::Left), drawn,
                       padding, format_bytes(bytes),
                       100 * static_cast<double>(bytes) / static_cast<double>(sum));
  }
  return out;
}

}  // namespace snug::report
