// SPDX-License-Identifier: Apache-2.0
#include "watch/monitor/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/text.h"
#include "report/clock_text.h"
#include "report/text_width.h"
#include "report/wrap.h"
#include "watch/monitor/painter.h"
#include "watch/monitor/view_memory.h"

namespace snug::monitor {
namespace {

size_t columns_of(const ViewOptions& options) {
  return static_cast<size_t>(std::max(options.columns, 1));
}

constexpr int kRankOfProcesses = 5;

// From top to bottom; the processes' section, which is as high as there is room, is still empty.
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

// Gives the rows to the most important first; what does not fit then is left out.
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
  if (look.ranks.empty() || between_rows) return report::printable(text);
  const report::LiveState& live = look.ranks.front().live;
  if (live.total_steps > 0) text += fmt::format(", step {}/{}", live.step, live.total_steps);
  if (std::isfinite(live.loss)) text += fmt::format(", loss {:.4f}", live.loss);
  if (live.step > 0)
    text += fmt::format(", {} tok/s",
                        with_commas(std::llround(std::clamp(live.tokens_per_second, 0.0, 1e15))));
  if (live.peak > 0) text += fmt::format(", {}", MemoryView(live).sentence(SIZE_MAX));
  if (live.seconds_left && !look.ranks.front().is_over())
    text += fmt::format(", {} left", report::clock_text(*live.seconds_left));
  return report::printable(text);
}

}  // namespace snug::monitor
