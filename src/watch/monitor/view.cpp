// Chooses the sections that fit the terminal, and draws those about the machine and the processes.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/bytes.h"
#include "base/text.h"
#include "report/text_width.h"
#include "watch/monitor/painter.h"
#include "watch/monitor/view.h"

namespace snug::monitor {
namespace {

using report::clock_text;

// The GPUs on which the run's processes have memory; if the driver's process ids differ from the
// kernel's (in a container), those with the name of the run's device.
std::vector<const machine::Gpu*> gpus_of_run(const Look& look) {
  std::vector<const machine::Gpu*> used, same;
  if (look.ranks.empty()) return used;
  for (const machine::Gpu& gpu : look.gpus.gpus) {
    const bool is_used = std::ranges::any_of(look.ranks, [&](const RankLook& rank) {
      return rank.is_here && gpu.process_bytes.contains(rank.live.pid);
    });
    if (is_used) used.push_back(&gpu);
    if (!gpu.name.empty() && look.ranks.front().live.device.starts_with(gpu.name))
      same.push_back(&gpu);
  }
  return used.empty() ? same : used;
}

// Columns from which the table of processes has one more column.
constexpr size_t kWithProcessor = 42, kWithResident = 54, kWithHost = 60;

std::string first_that_fits(size_t columns, const Texts& texts) {
  for (const std::string& text : texts)
    if (report::display_width(text) <= columns) return text;
  return {};
}

}  // namespace

Section Painter::processor() const {
  double percent = 0;
  int64_t resident = 0;
  bool is_known = false;
  for (const RankLook& rank : look_.ranks) {
    if (!rank.use) continue;
    is_known = true;
    percent += rank.processor_percent.value_or(0);
    resident += rank.use->resident;
  }
  if (!is_known) return {};
  const double cores = percent / 100;
  return {3,
          {labelled("Processor", gauge_and(cores / std::max(look_.cores, 1),
                                           {fmt::format("{:.1f} of {} cores", cores, look_.cores),
                                            fmt::format("{} resident", format_bytes(resident))}))}};
}

std::string Painter::gpu_line(const machine::Gpu& gpu) const {
  Texts texts;
  if (gpu.busy_percent) texts.push_back(fmt::format("{:3} % busy", *gpu.busy_percent));
  texts.push_back(
      fmt::format("{} of {}", format_bytes(gpu.memory_used), format_bytes(gpu.memory_total)));
  if (gpu.power_watts) texts.push_back(fmt::format("{} W", *gpu.power_watts));
  if (gpu.temperature) texts.push_back(fmt::format("{} °C", *gpu.temperature));
  return labelled(fmt::format("GPU {}", gpu.index),
                  gpu.busy_percent ? gauge_and(*gpu.busy_percent / 100.0, texts) : joined(texts));
}

Section Painter::gpus() const {
  Section section{3, {}};
  for (const machine::Gpu* gpu : gpus_of_run(look_)) section.lines.push_back(gpu_line(*gpu));
  return section;
}

std::string Painter::rank_titles() const {
  std::string text = fmt::format("{:<4} {:<10} {:>6} {:>11}", "rank", "state", "step", "memory");
  if (columns_ >= kWithProcessor) text += fmt::format(" {:>7}", "proc.");
  if (columns_ >= kWithResident) text += fmt::format(" {:>11}", "resident");
  if (columns_ >= kWithHost) text += "  host";
  return text;
}

std::string Painter::rank_line(const RankLook& rank) const {
  const report::LiveState& live = rank.live;
  std::string word = live.state == "ended" ? live.outcome : live.state;
  if (rank.is_gone) word = "gone";
  std::string processor = "-", resident = "-";
  if (rank.processor_percent) processor = fmt::format("{:.0f} %", *rank.processor_percent);
  if (rank.use) resident = format_bytes(rank.use->resident);
  std::string text = fmt::format("{:<4} {} {:>6} {:>11}", live.rank,
                                 paint(padded(printable(word), 10), colour_of_state(word), style_),
                                 live.step, format_bytes(live.allocated));
  if (columns_ >= kWithProcessor) text += fmt::format(" {:>7}", processor);
  if (columns_ >= kWithResident) text += fmt::format(" {:>11}", resident);
  if (columns_ >= kWithHost) text += "  " + printable(live.host);
  const std::string ago = clock_text(rank.silent_seconds);
  if (rank.is_gone)
    return text + first_that_fits(
                      columns_ - std::min(columns_, report::display_width(text)),
                      {fmt::format(" (process {}, last seen {} ago)", live.pid, ago),
                       fmt::format(" (last seen {} ago)", ago), fmt::format(" ({} ago)", ago)});
  if (!rank.is_here && !rank.has_ended())
    return text + first_that_fits(
                      columns_ - std::min(columns_, report::display_width(text)),
                      {fmt::format(" (last update {} ago)", ago), fmt::format(" ({} ago)", ago)});
  return text;
}

// If they do not all fit, those that failed come first and the rest are counted.
Section Painter::ranks(size_t most) const {
  if (look_.ranks.empty()) return {};
  Section section{5, {paint(rank_titles(), "2", style_)}};
  std::vector<const RankLook*> order;
  for (const RankLook& rank : look_.ranks) order.push_back(&rank);
  if (order.size() + 1 > most)
    std::stable_partition(order.begin(), order.end(), [](const RankLook* rank) {
      return rank->is_gone || (rank->has_ended() && rank->live.outcome != "ok");
    });
  const size_t shown = order.size() + 1 <= most ? order.size() : std::max<size_t>(most, 3) - 2;
  for (size_t i = 0; i < shown; ++i) section.lines.push_back(rank_line(*order[i]));
  if (shown < order.size())
    section.lines.push_back(fmt::format("and {} more", order.size() - shown));
  return section;
}

namespace {

size_t columns_of(const ViewOptions& options) {
  return static_cast<size_t>(std::max(options.columns, 1));
}

constexpr int kRankOfProcesses = 5;

// From top to bottom. The processes' section gets its lines in fit(), when the room for it is
// known.
std::vector<Section> sections_of(const Look& look, const Painter& painter,
                                 const ViewOptions& options) {
  std::vector<Section> sections{painter.head()};
  for (Section& section : painter.about()) sections.push_back(std::move(section));
  sections.push_back(painter.suite());
  sections.push_back(painter.progress());
  if (options.help) {
    sections.push_back(painter.help());
  } else {
    for (Section section : {painter.memory_bar(), painter.memory_table(), painter.speed(),
                            painter.loss(), painter.processor(), painter.gpus()})
      sections.push_back(std::move(section));
    sections.push_back({kRankOfProcesses, {}});
  }
  if (is_over(look))
    sections.push_back({0, report::wrapped(ending_sentence(look), columns_of(options))});
  if (options.keys) sections.push_back(painter.keys());
  return sections;
}

// Gives lines to the most important sections first and leaves out what does not fit.
void fit(std::vector<Section>& sections, const Painter& painter, size_t rows) {
  std::vector<Section*> order;
  for (Section& section : sections) order.push_back(&section);
  std::ranges::stable_sort(order, {}, &Section::rank);
  size_t left = rows;
  for (Section* section : order) {
    if (section->rank == kRankOfProcesses) *section = painter.ranks(left);
    if (section->rank > 0 && section->lines.size() > left) section->lines.clear();
    left -= std::min(left, section->lines.size());
  }
}

}  // namespace

std::vector<std::string> view(const Look& look, const ViewOptions& options) {
  const Painter painter(look, options);
  const size_t rows = options.rows > 0 ? static_cast<size_t>(options.rows) : SIZE_MAX;
  std::vector<Section> sections = sections_of(look, painter, options);
  fit(sections, painter, rows);
  std::vector<std::string> lines;
  for (Section& section : sections)
    for (std::string& line : section.lines) lines.push_back(std::move(line));
  if (lines.size() > rows) lines.resize(rows);
  for (std::string& line : lines) {
    std::string cut = report::fit_columns(line, columns_of(options));
    if (options.style.colours && cut.size() < line.size()) cut += "\x1b[0m";
    cut.erase(cut.find_last_not_of(' ') + 1);
    line = std::move(cut);
  }
  return lines;
}

std::string plain_line(const Look& look) {
  std::string text = state_word(look);
  if (look.suite) {
    const std::string row =
        look.suite->current.empty() ? "" : fmt::format(", {}: {}", look.suite->current, text);
    text =
        fmt::format("{} {}/{} rows{}", look.suite->name, look.suite->done, look.suite->total, row);
  }
  const bool between_rows = look.suite && look.suite->current.empty();
  if (look.ranks.empty() || between_rows) return printable(text);
  const report::LiveState& live = look.ranks.front().live;
  if (live.total_steps > 0) text += fmt::format(", step {}/{}", live.step, live.total_steps);
  if (std::isfinite(live.loss)) text += fmt::format(", loss {:.4f}", live.loss);
  if (live.step > 0)
    text += fmt::format(", {} tok/s",
                        with_commas(std::llround(std::clamp(live.tokens_per_second, 0.0, 1e15))));
  if (live.peak > 0) text += fmt::format(", {}", MemoryView(live).sentence(SIZE_MAX));
  if (live.seconds_left && !look.ranks.front().is_over())
    text += fmt::format(", {} left", report::clock_text(*live.seconds_left));
  return printable(text);
}

}  // namespace snug::monitor
