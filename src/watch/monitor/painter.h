// The sections of the view, each a few lines that are shown or left out together. Those about the
// run are in painter_run.cpp; view.cpp draws those about the machine and chooses among them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"
#include "report/live_status.h"
#include "watch/monitor/look.h"
#include "watch/monitor/view.h"

namespace snug::monitor {

using Style = TextStyle;

// The text in a colour ("32", "1;31"), if the style has colours.
std::string paint(std::string_view text, std::string_view colour, const Style& style);

// Exactly `columns` wide: filled with blanks, or cut.
std::string padded(std::string_view text, size_t columns);

// Bars and curves fill their `columns` exactly. A gauge is full at share 1.
std::string gauge(double share, size_t columns, std::string_view colour, const Style& style);

// One part of a stacked bar, drawn with its letter if there are no colours.
struct Part {
  char letter = '?';
  std::string colour;
  int64_t bytes = 0;
};

// Parts side by side on a scale of `full` bytes, with a mark at `mark` bytes (0: none). A part that
// is not empty gets at least one column if there is room.
std::string stacked_bar(const std::vector<Part>& parts, int64_t full, int64_t mark, size_t columns,
                        const Style& style);

// Values as a curve of one line, evenly over `columns`; NaN and infinities are left blank.
std::string sparkline(const std::vector<double>& values, size_t columns, const Style& style);

// Sections with a higher rank are left out earlier; rank 0 is always shown.
struct Section {
  int rank = 0;
  std::vector<std::string> lines;
};
using Texts = std::vector<std::string>;

class Painter {
 public:
  Painter(const Look& look, const ViewOptions& options)
      : look_(look),
        style_(options.style),
        columns_(static_cast<size_t>(std::max(options.columns, 1))),
        wide_(columns_ > kLabel ? columns_ - kLabel : 0) {}

  Section head() const;
  std::vector<Section> about() const;
  Section suite() const;
  Section progress() const;
  Section memory_bar() const;
  Section memory_table() const;
  Section speed() const;
  Section loss() const;
  Section processor() const;
  Section gpus() const;
  Section ranks(size_t most) const;  // at most max(most, 3) lines
  Section help() const;
  Section keys() const;

 private:
  static constexpr size_t kLabel = 10;  // columns of a line's label

  static std::string labelled(std::string_view label, std::string_view text);
  const report::LiveState& first() const { return look_.ranks.front().live; }
  size_t room_beside(size_t text) const { return wide_ > text ? wide_ - text : 0; }
  // The texts that fit beside a label.
  std::string joined(const Texts& texts) const;
  std::string gauge_and(double share, const Texts& texts) const;
  std::string head_word() const;
  std::string gpu_line(const machine::Gpu& gpu) const;
  std::string rank_titles() const;
  std::string rank_line(const RankLook& rank) const;
  const char* gap() const { return style_.unicode ? " · " : ", "; }

  const Look& look_;
  Style style_;
  size_t columns_, wide_;
};

// "1;32" and the like, for a state's or an outcome's word.
std::string_view colour_of_state(std::string_view word);

// Memory by category, now and at the peak, against the budget and the planned peak.
class MemoryView {
 public:
  explicit MemoryView(const report::LiveState& live) : live_(live) {}

  // "1.52 GiB of 2.00 GiB, peak 1.91 GiB, planned 1.90 GiB", as much of it as fits.
  std::string sentence(size_t columns) const;
  // Bytes of a full bar: the budget, or the largest figure shown.
  int64_t scale() const;
  std::string bar_now(size_t columns, const Style& style) const;
  std::string bar_at_peak(size_t columns, const Style& style) const;
  // One line per category that is not empty now and at the peak.
  std::vector<std::string> table(size_t columns, const Style& style) const;

 private:
  std::vector<Part> parts(const std::map<std::string, int64_t>& bytes) const;
  std::vector<std::string> categories() const;

  const report::LiveState& live_;
};

}  // namespace snug::monitor
