// SPDX-License-Identifier: Apache-2.0
#include "monitor/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/text.h"
#include "monitor/view_memory.h"
#include "report/text_width.h"

namespace snug::monitor {
namespace {

using report::LiveState;
using report::printable;

constexpr size_t kLabel = 10;  // columns of what stands before a line

// Lines that stand and fall together. The higher its rank, the earlier it is left out.
struct Section {
  int rank = 0;
  std::vector<std::string> lines;
};

std::string_view colour_of_state(const std::string& word) {
  if (word == "ok" || word == "training") return "1;32";
  if (word == "oom" || word == "error" || word == "gone") return "1;31";
  return "1;33";
}

std::string labelled(std::string_view label, std::string_view text) {
  return padded(label, kLabel) + std::string(text);
}

class Painter {
 public:
  Painter(const Look& look, const ViewOptions& options)
      : look_(look),
        style_(options.style),
        columns_(static_cast<size_t>(std::max(options.columns, 1))),
        wide_(columns_ > kLabel ? columns_ - kLabel : 0) {}

  Section head() const;
  Section about() const;
  Section suite() const;
  Section progress() const;
  Section memory_bar() const;
  Section memory_table() const;
  Section speed() const;
  Section loss() const;
  Section processor() const;
  Section gpus() const;
  Section ranks(size_t most) const;
  Section help() const;
  Section keys() const;

 private:
  const LiveState& first() const { return look_.ranks.front().live; }
  size_t room_beside(size_t text) const { return wide_ > text ? wide_ - text : 0; }
  std::string gpu_line(const machine::Gpu& gpu) const;
  std::string rank_line(const RankLook& rank) const;
  const char* gap() const { return style_.unicode ? " · " : ", "; }

  const Look& look_;
  Style style_;
  size_t columns_, wide_;
};

Section Painter::head() const {
  const std::string word = state_word(look_);
  std::string times;
  if (!look_.ranks.empty()) {
    const double until = is_over(look_) ? first().time : look_.time;
    times = clock_text(until - first().started);
    if (first().seconds_left && !is_over(look_))
      times += fmt::format("{}{} left", gap(), clock_text(*first().seconds_left));
  }
  const std::string right = times.empty() ? word : fmt::format("{}{}{}", word, gap(), times);
  const size_t width = report::display_width(right);
  const size_t room = columns_ > width + 1 ? columns_ - width - 1 : 0;
  const std::string left = padded("snug " + printable(look_.folder.string()), room);
  return {0,
          {paint(left, "1", style_) + (room > 0 ? " " : "") +
           paint(word, colour_of_state(word), style_) + right.substr(word.size())}};
}

Section Painter::about() const {
  if (look_.ranks.empty())
    return {1, {labelled("", "has not begun yet: this goes on when it does")}};
  const std::string processes =
      first().world_size > 1 ? fmt::format("{}{} processes", gap(), first().world_size) : "";
  return {
      6,
      {labelled("Model", printable(first().model)), labelled("Command", printable(first().command)),
       labelled("Device", fmt::format("{}{}{}{}", printable(first().device), processes, gap(),
                                      printable(first().host)))}};
}

Section Painter::suite() const {
  if (!look_.suite) return {};
  const SuiteLook& suite = *look_.suite;
  const double share =
      suite.total > 0 ? static_cast<double>(suite.done) / static_cast<double>(suite.total) : 0;
  const std::string count = fmt::format("  {}/{} rows", suite.done, suite.total);
  Section section{1, {}};
  section.lines.push_back(labelled(
      "Suite",
      gauge(share, std::min<size_t>(room_beside(count.size()), 60), "36", style_) + count));
  const std::string mode = suite.mode.empty() ? "" : fmt::format(" ({})", printable(suite.mode));
  section.lines.push_back(
      labelled("", fmt::format("{}{}{}", printable(suite.name), mode,
                               suite.current.empty() ? "" : ": now " + printable(suite.current))));
  std::string done;
  for (const auto& [id, outcome] : suite.newest)
    done += fmt::format("{}{} {}", done.empty() ? "" : ", ", printable(id), printable(outcome));
  if (!done.empty()) section.lines.push_back(labelled("", "done: " + done));
  return section;
}

Section Painter::progress() const {
  if (look_.ranks.empty() || first().total_steps <= 0) return {};
  const double share = static_cast<double>(first().step) / static_cast<double>(first().total_steps);
  const std::string count =
      fmt::format("  {}/{} {:3.0f} %", first().step, first().total_steps, 100 * share);
  const size_t room = std::min<size_t>(room_beside(count.size()), 60);
  return {1, {labelled("Steps", gauge(share, room, "32", style_) + count)}};
}

Section Painter::memory_bar() const {
  if (look_.ranks.empty()) return {};
  const MemoryView memory(first());
  Section section{2, {labelled("Memory", memory.sentence())}};
  const std::string end = "  " + format_bytes(memory.scale());
  const size_t room = std::min<size_t>(room_beside(end.size()), 60);
  if (memory.scale() > 0 && room >= 8) {
    section.lines.push_back(labelled("  now", memory.bar_now(room, style_) + end));
    section.lines.push_back(labelled("  at peak", memory.bar_at_peak(room, style_)));
  }
  return section;
}

Section Painter::memory_table() const {
  if (look_.ranks.empty()) return {};
  return {4, MemoryView(first()).table(columns_, style_)};
}

Section Painter::speed() const {
  if (look_.ranks.empty() || first().step == 0) return {};
  std::string text = fmt::format(
      "{} tok/s", with_commas(std::llround(std::clamp(first().tokens_per_second, 0.0, 1e15))));
  if (first().share_of_peak >= 0.005)
    text += fmt::format("{}{:.0f} % of peak", gap(), 100 * first().share_of_peak);
  text += fmt::format("{}{:.2f} s a step", gap(), first().step_seconds);
  return {3, {labelled("Speed", text)}};
}

Section Painter::loss() const {
  if (look_.ranks.empty() || first().losses.empty()) return {};
  const std::string last = fmt::format("{:.4f}  ", first().loss);
  const size_t room = std::min<size_t>(room_beside(last.size()), 60);
  return {3,
          {labelled("Loss", last + paint(sparkline(first().losses, room, style_), "36", style_))}};
}

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
  const std::string text = fmt::format("  {:.1f} of {} cores{}{} resident", percent / 100,
                                       look_.cores, gap(), format_bytes(resident));
  const size_t room = std::min<size_t>(room_beside(text.size()), 20);
  return {3,
          {labelled("Processor",
                    gauge(percent / 100 / std::max(look_.cores, 1), room, "34", style_) + text)}};
}

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

std::string Painter::gpu_line(const machine::Gpu& gpu) const {
  std::string text =
      fmt::format("  {} of {}", format_bytes(gpu.memory_used), format_bytes(gpu.memory_total));
  if (gpu.busy_percent)
    text = fmt::format(" {:3} % busy{}", *gpu.busy_percent, gap()) + text.substr(2);
  if (gpu.power_watts) text += fmt::format("{}{} W", gap(), *gpu.power_watts);
  if (gpu.temperature) text += fmt::format("{}{} °C", gap(), *gpu.temperature);
  const size_t room = std::min<size_t>(room_beside(report::display_width(text)), 20);
  const std::string bar =
      gpu.busy_percent ? gauge(*gpu.busy_percent / 100.0, room, "34", style_) : std::string();
  return labelled(fmt::format("GPU {}", gpu.index), bar + text);
}

Section Painter::gpus() const {
  Section section{3, {}};
  for (const machine::Gpu* gpu : gpus_of_run(look_)) section.lines.push_back(gpu_line(*gpu));
  return section;
}

std::string Painter::rank_line(const RankLook& rank) const {
  const LiveState& live = rank.live;
  std::string word = live.state == "ended" ? live.outcome : live.state;
  if (rank.is_gone) word = "gone";
  std::string processor = "-", resident = "-";
  if (rank.processor_percent) processor = fmt::format("{:.0f} %", *rank.processor_percent);
  if (rank.use) resident = format_bytes(rank.use->resident);
  std::string text =
      fmt::format("{:<4} {} {:>6} {:>11} {:>7} {:>11}  {}", live.rank,
                  paint(padded(printable(word), 10), colour_of_state(word), style_), live.step,
                  format_bytes(live.allocated), processor, resident, printable(live.host));
  if (rank.is_gone)
    text +=
        fmt::format(" (process {}, last seen {} ago)", live.pid, clock_text(rank.silent_seconds));
  else if (!rank.is_here && !rank.has_ended())
    text += fmt::format(" (last heard of {} ago)", clock_text(rank.silent_seconds));
  return text;
}

// At most so many lines: then those that went wrong come first, and the others are counted.
Section Painter::ranks(size_t most) const {
  if (look_.ranks.empty()) return {};
  Section section{5,
                  {paint(fmt::format("{:<4} {:<10} {:>6} {:>11} {:>7} {:>11}  {}", "rank", "state",
                                     "step", "memory", "proc.", "resident", "host"),
                         "2", style_)}};
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

Section Painter::help() const {
  return {1,
          {"Memory is that of the run's device, by what it is for:", "  parameters     the weights",
           "  gradients      of the loss by each trained weight",
           "  optimizer      its states, two numbers a weight for AdamW",
           "  activations    what forward keeps for backward",
           "  workspace      gone by the end of the operation that made it",
           "  communication  what processes send each other", "  data           the batch",
           "now: at the end of the last step; peak: the most so far",
           "the mark in the bar: the peak that was planned"}};
}

Section Painter::keys() const { return {2, {paint("q quit   h help   r look now", "2", style_)}}; }

// Of those that are left, drops the least important until all fit; what is still too much is cut.
std::vector<std::string> fitted(std::vector<Section> sections, size_t rows) {
  const auto height = [&] {
    size_t lines = 0;
    for (const Section& section : sections) lines += section.lines.size();
    return lines;
  };
  while (rows > 0 && height() > rows) {
    const auto last = std::ranges::max_element(sections, {}, &Section::rank);
    if (last->rank == 0) break;
    sections.erase(last);
  }
  std::vector<std::string> lines;
  for (Section& section : sections)
    for (std::string& line : section.lines) lines.push_back(std::move(line));
  if (rows > 0 && lines.size() > rows) lines.resize(rows);
  return lines;
}

}  // namespace

std::vector<std::string> view(const Look& look, const ViewOptions& options) {
  const Painter painter(look, options);
  std::vector<Section> sections{painter.head(), painter.about(), painter.suite(),
                                painter.progress()};
  if (options.help) {
    sections.push_back(painter.help());
  } else {
    for (Section section : {painter.memory_bar(), painter.memory_table(), painter.speed(),
                            painter.loss(), painter.processor(), painter.gpus()})
      sections.push_back(std::move(section));
  }
  Section last;
  if (is_over(look)) last.lines.push_back(ending_sentence(look));
  if (!options.help) {
    size_t others = last.lines.size() + (options.keys ? 1 : 0);
    for (const Section& section : sections) others += section.lines.size();
    const auto rows = static_cast<size_t>(std::max(options.rows, 0));
    sections.push_back(painter.ranks(rows == 0 ? SIZE_MAX : std::max(rows, others + 4) - others));
  }
  sections.push_back(std::move(last));
  if (options.keys) sections.push_back(painter.keys());
  std::erase_if(sections, [](const Section& section) { return section.lines.empty(); });
  std::vector<std::string> lines =
      fitted(std::move(sections), static_cast<size_t>(std::max(options.rows, 0)));
  for (std::string& line : lines) {
    std::string cut = report::fit_columns(line, static_cast<size_t>(std::max(options.columns, 1)));
    if (options.style.colours && cut.size() < line.size()) cut += "\x1b[0m";
    cut.erase(cut.find_last_not_of(' ') + 1);
    line = std::move(cut);
  }
  return lines;
}

std::string plain_line(const Look& look) {
  std::string text = state_word(look);
  if (look.suite)
    text = fmt::format("{} {}/{} rows{}: {}", look.suite->name, look.suite->done, look.suite->total,
                       look.suite->current.empty() ? "" : ", " + look.suite->current, text);
  if (look.ranks.empty()) return printable(text);
  const LiveState& live = look.ranks.front().live;
  if (live.total_steps > 0) text += fmt::format(", step {}/{}", live.step, live.total_steps);
  if (std::isfinite(live.loss)) text += fmt::format(", loss {:.4f}", live.loss);
  if (live.step > 0)
    text += fmt::format(", {} tok/s",
                        with_commas(std::llround(std::clamp(live.tokens_per_second, 0.0, 1e15))));
  if (live.peak > 0) text += fmt::format(", {}", MemoryView(live).sentence());
  if (live.seconds_left && live.state != "ended")
    text += fmt::format(", {} left", clock_text(*live.seconds_left));
  return printable(text);
}

}  // namespace snug::monitor
