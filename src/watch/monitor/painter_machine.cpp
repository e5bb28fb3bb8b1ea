// What is said of the machine that the run is on, and of each of its processes.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "report/clock_text.h"
#include "report/text_width.h"
#include "watch/monitor/painter.h"

namespace snug::monitor {
namespace {

using report::clock_text;
using report::printable;

// Those that the run's processes have memory on; where the driver counts other processes than the
// kernel here does, those of the run's kind.
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

// Columns from which a line of the processes has a figure more.
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

// The first half of a table's line, and what a narrow terminal has no room for.
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

// At most so many lines: then those that went wrong come first, and the others are counted.
Section Painter::ranks(size_t most) const {
  if (look_.ranks.empty()) return {};
  Section section{5, {paint(rank_titles(), "2", style_)}};
  std::vector<const RankLook*> order;
  for (const RankLook& rank : look_.ranks) order.push_back(&rank);
  if (order.size() + 1 > most)
    std::ranges::stable_partition(order, [](const RankLook* rank) {
      return rank->is_gone || (rank->has_ended() && rank->live.outcome != "ok");
    });
  const size_t shown = order.size() + 1 <= most ? order.size() : std::max<size_t>(most, 3) - 2;
  for (size_t i = 0; i < shown; ++i) section.lines.push_back(rank_line(*order[i]));
  if (shown < order.size())
    section.lines.push_back(fmt::format("and {} more", order.size() - shown));
  return section;
}

}  // namespace snug::monitor
