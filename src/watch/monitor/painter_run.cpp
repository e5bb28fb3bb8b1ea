// The sections about the run (progress, memory, speed, loss) and the help.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/text.h"
#include "report/text_width.h"
#include "watch/monitor/painter.h"

namespace snug::monitor {

namespace {
constexpr size_t kShortestBar = 4;
}

using report::clock_text;

std::string_view colour_of_state(std::string_view word) {
  if (word == "ok" || word == "training") return "1;32";
  if (word == "oom" || word == "timeout" || word == "error" || word == "gone") return "1;31";
  return "1;33";
}

std::string Painter::labelled(std::string_view label, std::string_view text) {
  return padded(label, kLabel) + std::string(text);
}

std::string Painter::joined(const Texts& texts) const {
  std::string all;
  for (const std::string& text : texts) {
    const std::string more = all.empty() ? text : gap() + text;
    if (all.empty() || report::display_width(all + more) <= wide_) all += more;
  }
  return all;
}

// The texts first, then a bar in what they leave.
std::string Painter::gauge_and(double share, const Texts& texts) const {
  const std::string text = joined(texts);
  const size_t room = room_beside(report::display_width(text) + 2);
  if (room < kShortestBar) return text;
  return gauge(share, std::min<size_t>(room, 20), "34", style_) + "  " + text;
}

// Between two rows of a suite, the last row's state would look like the end of the suite.
std::string Painter::head_word() const {
  if (!look_.suite) return state_word(look_);
  if (look_.suite->is_over) return look_.suite->done >= look_.suite->total ? "done" : "stopped";
  return look_.suite->current.empty() ? "between rows" : state_word(look_);
}

Section Painter::head() const {
  const std::string word = head_word();
  std::string times;
  const bool has_time = !look_.suite || (!look_.suite->current.empty() && !look_.suite->is_over);
  if (has_time && !look_.ranks.empty()) {
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

std::vector<Section> Painter::about() const {
  if (look_.ranks.empty()) return {{1, report::wrapped("Waiting for the run to start.", columns_)}};
  Texts device{printable(first().device)};
  if (first().world_size > 1) device.push_back(fmt::format("{} processes", first().world_size));
  device.push_back(printable(first().host));
  return {{6, {labelled("Model", printable(first().model))}},
          {8, {labelled("Command", printable(first().command))}},
          {7, {labelled("Device", joined(device))}}};
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
  const bool row_runs = !suite.current.empty() && !suite.is_over;
  section.lines.push_back(
      labelled("", fmt::format("{}{}{}", printable(suite.name), mode,
                               row_runs ? ": now " + printable(suite.current) : "")));
  std::string done;
  for (const auto& [id, outcome] : suite.newest) {
    const std::string row = fmt::format("{} {}", printable(id), printable(outcome));
    const std::string all = done.empty() ? "done: " + row : fmt::format("{}, {}", done, row);
    if (done.empty() || report::display_width(all) <= wide_) done = all;
  }
  if (!done.empty()) section.lines.push_back(labelled("", done));
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
  Section section{2, {labelled("Memory", memory.sentence(wide_))}};
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
  Texts texts{fmt::format(
      "{} tok/s", with_commas(std::llround(std::clamp(first().tokens_per_second, 0.0, 1e15))))};
  if (first().share_of_peak >= 0.005)
    texts.push_back(fmt::format("{:.0f} % of peak", 100 * first().share_of_peak));
  texts.push_back(fmt::format("{:.2f} s/step", first().step_seconds));
  return {3, {labelled("Speed", joined(texts))}};
}

Section Painter::loss() const {
  if (look_.ranks.empty() || first().losses.empty()) return {};
  const std::string last = fmt::format("{:.4f}  ", first().loss);
  const size_t room = std::min<size_t>(room_beside(last.size()), 60);
  return {3,
          {labelled("Loss", last + paint(sparkline(first().losses, room, style_), "36", style_))}};
}

// At most 40 columns wide.
Section Painter::help() const {
  const char* mark = style_.unicode ? "┃" : "|";
  return {1,
          {"Memory of the device, by what it is for:", "  parameters     the weights",
           "  gradients      of the trained weights", "  optimizer      two a weight with AdamW",
           "  activations    kept for backward", "  workspace      of the running operator",
           "  communication  between processes", "  data           the batch",
           "now      at the end of the last step", "at peak  when memory use was highest",
           fmt::format("{}        the planned peak", mark)}};
}

Section Painter::keys() const { return {2, {paint("q quit   h help   r refresh", "2", style_)}}; }

}  // namespace snug::monitor
