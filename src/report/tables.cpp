// SPDX-License-Identifier: Apache-2.0
#include "report/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

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

std::string Table::render(size_t columns) const {
  std::vector<size_t> shown(columns_.size()), widths;
  std::iota(shown.begin(), shown.end(), size_t{0});
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = display_width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i]));
    widths.push_back(width);
  }
  const auto total = [&] {
    size_t sum = (shown.size() - 1) * kGap.size();
    for (const size_t i : shown) sum += widths[i];
    return sum;
  };
  if (columns > 0 && !shown.empty()) {
    // A last column of texts may be as narrow as this.
    constexpr size_t kLeastText = 24;
    const size_t last = columns_.size() - 1;
    const size_t whole = widths[last];
    const bool wraps = columns_[last].align == Align::Left;
    if (wraps) widths[last] = std::min(whole, kLeastText);
    for (size_t i = columns_.size(); i-- > 0 && total() > columns;)
      if (columns_[i].spare) std::erase(shown, i);
    if (const size_t used = total(); wraps && used < columns)
      widths[last] = std::min(whole, widths[last] + columns - used);
  }
  std::string out;
  const auto add = [&](const auto& cell_of) {
    std::vector<std::string> texts{""};
    if (columns_[shown.back()].align == Align::Left)
      texts = wrapped(cell_of(shown.back()), widths[shown.back()]);
    if (texts.empty()) texts.emplace_back();
    for (size_t k = 0; k < texts.size(); ++k) {
      std::string line;
      for (const size_t i : shown) {
        const bool is_text = i == shown.back() && columns_[i].align == Align::Left;
        const std::string cell = is_text ? texts[k] : k == 0 ? cell_of(i) : "";
        line += (i == shown.front() ? "" : std::string(kGap)) +
                aligned(cell, widths[i], columns_[i].align);
      }
      out += without_trailing_spaces(std::move(line));
    }
  };
  add([&](size_t i) { return columns_[i].title; });
  add([&](size_t i) {
    std::string rule;
    for (size_t k = 0; k < widths[i]; ++k) rule += "─";
    return rule;
  });
  for (const auto& row : rows_) add([&](size_t i) { return row[i]; });
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

namespace {

int64_t largest_of(std::span<const PhaseRecord> phases) {
  int64_t largest = 0;
  for (const PhaseRecord& phase : phases)
    for (const MemoryColumn& column : kMemoryColumns)
      largest = std::max(largest, phase.*column.bytes);
  return largest;
}

}  // namespace

// MiB at least, since lines that follow each other are compared.
std::string memory_line(const PhaseRecord& phase) {
  const std::span<const PhaseRecord> one(&phase, 1);
  const Unit unit = unit_for(std::max<int64_t>(kMiB, largest_of(one)));
  std::string out = fmt::format("Memory   step {}, ", shown_step(phase));
  if (phase.micro_batch > 0) out += fmt::format("micro-batch {}, ", phase.micro_batch);
  out += phase.phase;
  const char* before = ": ";
  for (const MemoryColumn& column : columns_with_figures(one, unit)) {
    out += fmt::format("{}{} {}", before, column.title, in_unit(phase.*column.bytes, unit));
    before = ", ";
  }
  return fmt::format("{} {}", out, unit.name);
}

std::string memory_table(std::span<const PhaseRecord> phases) {
  const Unit unit = unit_for(largest_of(phases));
  const std::vector<MemoryColumn> columns = columns_with_figures(phases, unit);
  const bool has_micro_batches =
      std::ranges::any_of(phases, [](const PhaseRecord& p) { return p.micro_batch > 0; });
  std::vector<Table::Column> titles{{"Step"}};
  if (has_micro_batches) titles.push_back({"Micro-batch"});
  titles.push_back({fmt::format("Phase ({})", unit.name), Align::Left});
  for (const MemoryColumn& column : columns) titles.push_back({column.title});
  Table table(std::move(titles));
  PhaseRecord last{.step = -1};
  for (const PhaseRecord& phase : phases) {
    std::vector<std::string> row{phase.step == last.step ? "" : std::to_string(shown_step(phase))};
    const bool is_next = phase.micro_batch != last.micro_batch || phase.step != last.step;
    if (has_micro_batches)
      row.push_back(is_next && phase.micro_batch > 0 ? std::to_string(phase.micro_batch) : "");
    row.push_back(phase.phase);
    for (const MemoryColumn& column : columns) row.push_back(in_unit(phase.*column.bytes, unit));
    table.add_row(std::move(row));
    last = phase;
  }
  return table.render();
}

PhaseRecord refusal_row(const RunRecord& record) {
  if (!record.out_of_memory) return {};
  const OutOfMemoryRecord& refused = *record.out_of_memory;
  const auto live = [&](const char* category) {
    const auto found = refused.by_category.find(category);
    return found == refused.by_category.end() ? 0 : found->second;
  };
  const std::vector<PhaseRecord>& phases = record.memory.phases;
  return {.step = record.steps.empty() ? 0 : record.steps.back().step,
          .phase = "refused, " + refused.phase,
          .parameters = live("parameters"),
          .gradients = live("gradients"),
          .optimizer_device = live("optimizer"),
          .optimizer_host = phases.empty() ? 0 : phases.back().optimizer_host,
          .activations = live("activations"),
          .workspace = live("workspace"),
          .communication = live("communication"),
          .data = live("data"),
          .allocated = refused.allocated,
          .peak = record.memory.measured.peak_allocated,
          .reserved = record.memory.measured.peak_reserved};
}

std::vector<PhaseRecord> shown_phases(const RunRecord& record) {
  constexpr size_t kSteps = 4, kRecords = 100;
  const std::vector<PhaseRecord>& phases = record.memory.phases;
  std::set<int64_t> steps;
  for (const PhaseRecord& phase : phases) steps.insert(phase.step);
  while (steps.size() > kSteps) steps.erase(std::prev(steps.end(), 2));
  std::vector<PhaseRecord> out;
  for (const PhaseRecord& phase : phases)
    if (steps.contains(phase.step) && out.size() < kRecords) out.push_back(phase);
  if (record.out_of_memory && record.out_of_memory->requested > 0)
    out.push_back(refusal_row(record));
  return out;
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

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.size() % 2 == 1 ? *middle
                                : (*middle + *std::max_element(values.begin(), middle)) / 2;
}

int64_t num_steps(std::span<const StepRecord> steps) {
  return std::accumulate(steps.begin(), steps.end(), int64_t{0},
                         [](int64_t sum, const StepRecord& step) { return sum + step.count; });
}

StepStatistics statistics_of(std::span<const StepRecord> steps) {
  const int64_t all = num_steps(steps);
  const int64_t warm_up = all > 1 ? std::clamp<int64_t>(all / 10, 1, 10) : 0;
  std::vector<double> seconds, shares;  // of single steps
  double whole_seconds = 0;
  int64_t before = 0, count = 0;
  for (const StepRecord& step : steps) {
    before += step.count;
    if (before - step.count < warm_up) continue;
    whole_seconds += step.seconds;
    count += step.count;
    if (step.count > 1) continue;
    seconds.push_back(step.seconds);
    if (std::isfinite(step.utilization)) shares.push_back(step.utilization);
  }
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  StepStatistics out;
  if (seconds.empty()) return out;
  out.mean_seconds = whole_seconds / static_cast<double>(count);
  out.median_seconds = median(std::move(seconds));
  if (shares.empty()) return out;
  out.mean_utilization = mean(shares);
  if (shares.size() == 1) return out;
  double squares = 0;
  for (const double share : shares)
    squares += (share - out.mean_utilization) * (share - out.mean_utilization);
  out.utilization_deviation = std::sqrt(squares / static_cast<double>(shares.size() - 1));
  return out;
}

std::string epoch_text(const EpochRecord& epoch) {
  if (epoch.skipped == epoch.steps)
    return fmt::format("Epoch {}: no step of {} had a loss that is a number", epoch.epoch,
                       epoch.steps);
  return fmt::format("Epoch {}: mean training loss {:.4f} over {} step{}", epoch.epoch, epoch.loss,
                     epoch.steps, epoch.steps == 1 ? "" : "s");
}

std::string epoch_table(std::span<const EpochRecord> epochs) {
  Table table({{"Epoch"}, {"Steps"}, {"Mean loss"}, {"Tokens"}, {"Seconds"}});
  for (const EpochRecord& epoch : epochs)
    table.add_row({epoch.count == 1
                       ? std::to_string(epoch.epoch)
                       : fmt::format("{}–{}", epoch.epoch - epoch.count + 1, epoch.epoch),
                   with_commas(epoch.steps),
                   epoch.skipped == epoch.steps ? "–" : fmt::format("{:.4f}", epoch.loss),
                   with_commas(epoch.tokens), fmt::format("{:.2f}", epoch.seconds)});
  return table.render();
}

std::string utilization_text(const StepStatistics& steps) {
  if (!std::isfinite(steps.mean_utilization)) return "";
  const std::string deviation = std::isfinite(steps.utilization_deviation)
                                    ? fmt::format(" ± {:.1f}", 100 * steps.utilization_deviation)
                                    : "";
  return fmt::format("{:.1f}{} %", 100 * steps.mean_utilization, deviation);
}

namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

std::string section(const char* title, const Lines& lines) {
  std::string out = fmt::format("| {}:\n", title);
  for (const auto& [name, value] : lines) out += fmt::format("| - {:<25} : {}\n", name, value);
  return out;
}

std::string step_seconds_text(double seconds) {
  return seconds < 10 ? fmt::format("{:.2f} ms", 1000 * seconds) : fmt::format("{:.2f} s", seconds);
}

// LitGPT's Tok/sec counts padding; what a model learns from is the line below it.
Lines performance(const RunSummary& summary) {
  const double padded = summary.training_seconds > 0
                            ? static_cast<double>(summary.padded_tokens) / summary.training_seconds
                            : 0;
  Lines lines{{"Training Time (steps)", fmt::format("{:.2f} s", summary.training_seconds)},
              {"Tok/sec", fmt::format("{:.2f} tok/s", padded)},
              {"Tok/sec w/o Padding", fmt::format("{:.2f} tok/s", summary.tokens_per_second)}};
  if (summary.fit_seconds > 0)
    lines.emplace(lines.begin() + 1, "Total Time",
                  fmt::format("{:.2f} s, with validation and checkpoints", summary.fit_seconds));
  if (summary.startup.first_step_ended > 0)
    lines.emplace_back(
        "Startup", fmt::format("{:.2f} s, first step done at {:.2f} s",
                               summary.startup.first_step_begun, summary.startup.first_step_ended));
  const StepStatistics& steps = summary.steps;
  if (std::isfinite(steps.mean_seconds))
    lines.emplace_back("Step Time",
                       fmt::format("mean {}, median {}", step_seconds_text(steps.mean_seconds),
                                   step_seconds_text(steps.median_seconds)));
  if (std::isfinite(steps.mean_utilization))
    lines.emplace_back("Utilization", utilization_text(steps));
  if (summary.share_of_peak > 0)
    lines.emplace_back("Share of peak FLOP/s",
                       fmt::format("{:.1f} %", 100 * summary.share_of_peak));
  return lines;
}

// LitGPT prints decimal gigabytes here; GiB is added.
Lines memory(const RunSummary& summary) {
  const double bytes = static_cast<double>(summary.memory_bytes);
  Lines lines{{"Memory Used",
               fmt::format("{:.2f} GB ({}){}", bytes / 1e9, format_bytes(summary.memory_bytes),
                           summary.rank ? fmt::format(", rank {}", *summary.rank) : "")}};
  if (summary.predicted_bytes > 0 && summary.memory_bytes > 0)
    lines.emplace_back(
        "Planned", fmt::format("{} ({:+.2f} % off)", format_bytes(summary.predicted_bytes),
                               100 * (static_cast<double>(summary.predicted_bytes) / bytes - 1)));
  if (summary.budget_bytes > 0)
    lines.emplace_back("Budget",
                       fmt::format("{} ({:.1f} % used)", format_bytes(summary.budget_bytes),
                                   100 * bytes / summary.budget_bytes));
  if (summary.num_alloc_retries > 0)
    lines.emplace_back("Allocator Retries", with_commas(summary.num_alloc_retries));
  return lines;
}

Lines validation(const RunSummary& summary) {
  Lines lines;
  if (summary.val_loss_before)
    lines.emplace_back("Before", fmt::format("{:.4f}", *summary.val_loss_before));
  if (summary.val_loss_after)
    lines.emplace_back("After", fmt::format("{:.4f}", *summary.val_loss_after));
  if (summary.accuracy_before)
    lines.emplace_back("Accuracy Before", fmt::format("{:.1f} %", 100 * *summary.accuracy_before));
  if (summary.accuracy_after)
    lines.emplace_back("Accuracy After", fmt::format("{:.1f} %", 100 * *summary.accuracy_after));
  return lines;
}

}  // namespace

RunSummary summary_of(const RunRecord& record) {
  RunSummary s{
      .fit_seconds = record.fit_seconds,
      .share_of_peak = record.speed.share_of_peak,
      .steps = statistics_of(record.steps),
      .memory_bytes = record.memory.measured.peak_allocated,
      .budget_bytes = record.device.budget_bytes,
      .predicted_bytes = record.memory.predicted ? record.memory.predicted->peak_allocated : 0,
      .num_alloc_retries = record.memory.measured.num_alloc_retries,
      .startup = record.startup,
      .notes = record.notes};
  for (const RankMemoryRecord& rank : record.ranks) {
    s.num_alloc_retries = std::max(s.num_alloc_retries, rank.num_alloc_retries);
    if (s.rank && rank.peak_allocated <= s.memory_bytes) continue;
    s.rank = rank.rank;
    s.memory_bytes = rank.peak_allocated;
    s.predicted_bytes = rank.predicted_allocated;
  }
  for (const StepRecord& step : record.steps) {
    s.input_tokens += step.raw_tokens;
    s.tokens_with_prompt += step.tokens;
    s.padded_tokens += step.padded_tokens;
    s.training_seconds += step.seconds;
  }
  if (s.training_seconds > 0)
    s.tokens_per_second = static_cast<double>(s.tokens_with_prompt) / s.training_seconds;
  if (record.validation.empty()) return s;
  if (record.validation.front().step == 0) s.val_loss_before = record.validation.front().loss;
  s.val_loss_after = record.validation.back().loss;
  // Beside the model before training all pairs are undecided there.
  const Figures& before = record.validation.front().figures;
  const auto margin = before.find("rewards_margin");
  if (s.val_loss_before && (margin == before.end() || margin->second != 0))
    s.accuracy_before = accuracy_in(before);
  s.accuracy_after = accuracy_in(record.validation.back().figures);
  return s;
}

std::string source_table(const RunRecord& record) {
  const Figures losses = record.validation.empty() ? Figures() : record.validation.back().sources;
  const bool was_read = std::ranges::any_of(
      record.sources, [](const SourceRecord& source) { return source.read > 0; });
  std::vector<Table::Column> columns = {
      {"Source", Align::Left}, {"Samples"}, {"Held out"}, {"An epoch has"}};
  if (was_read) columns.insert(columns.end(), {{"Read"}, {"Passes"}});
  if (!losses.empty()) columns.push_back({"Val. loss"});
  columns.push_back({"Style", Align::Left, /*spare=*/true});
  Table table(columns);
  for (const SourceRecord& source : record.sources) {
    std::vector<std::string> cells = {source.name, with_commas(source.samples),
                                      with_commas(source.held_out), with_commas(source.per_epoch)};
    if (was_read) {
      cells.push_back(with_commas(source.read));
      cells.push_back(fmt::format(
          "{:.2f}", static_cast<double>(source.read) / static_cast<double>(source.samples)));
    }
    const auto loss = losses.find(source.name);
    if (!losses.empty())
      cells.push_back(loss == losses.end() ? "" : fmt::format("{:.4f}", loss->second));
    cells.push_back(source.style);
    table.add_row(std::move(cells));
  }
  return table.render();
}

std::string rank_table(const std::vector<RankMemoryRecord>& ranks) {
  std::string table;
  for (const RankMemoryRecord& rank : ranks)
    table += fmt::format("  rank {:<4} {:>12} (planned {})\n", rank.rank,
                         format_bytes(rank.peak_allocated), format_bytes(rank.predicted_allocated));
  return table;
}

std::string summary_block(const RunSummary& summary) {
  const std::string rule = "| " + std::string(55, '-') + "\n";
  std::string out = rule;
  out +=
      section("Token Counts", {{"Input Tokens", with_commas(summary.input_tokens)},
                               {"Tokens w/ Prompt", with_commas(summary.tokens_with_prompt)},
                               {"Total Tokens (w/ Padding)", with_commas(summary.padded_tokens)}});
  out += rule + section("Performance", performance(summary));
  out += rule + section("Memory Usage", memory(summary));
  const Lines losses = validation(summary);
  if (!losses.empty()) out += rule + section("Validation Loss", losses);
  if (!summary.notes.empty()) out += rule;
  for (const std::string& note : summary.notes) out += fmt::format("| {}\n", note);
  return out + rule;
}

}  // namespace snug::report
