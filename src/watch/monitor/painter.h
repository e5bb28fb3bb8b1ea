// The parts of the picture, each a few lines that stand and fall together. What they say of the run
// is in painter_run.cpp, of the machine and the processes in painter_machine.cpp; view.cpp chooses
// among them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "watch/monitor/bars.h"
#include "watch/monitor/look.h"
#include "watch/monitor/view.h"

namespace snug::monitor {

// The higher its rank, the earlier it is left out; 0: never.
struct Section {
  int rank = 0;
  std::vector<std::string> lines;
};
using Texts = std::vector<std::string>;

// A section without lines has nothing to say.
class Painter {
 public:
  Painter(const Look& look, const ViewOptions& options)
      : look_(look),
        style_(options.style),
        columns_(static_cast<size_t>(std::max(options.columns, 1))),
        wide_(columns_ > kLabel ? columns_ - kLabel : 0) {}

  Section head() const;
  std::vector<Section> about() const;  // each to be left out by itself
  Section suite() const;
  Section progress() const;
  Section memory_bar() const;
  Section memory_table() const;
  Section speed() const;
  Section loss() const;
  Section processor() const;
  Section gpus() const;
  Section ranks(size_t most) const;  // at most so many lines; three at least
  Section help() const;
  Section keys() const;

 private:
  static constexpr size_t kLabel = 10;  // columns of what stands before a line

  static std::string labelled(std::string_view label, std::string_view text);
  const report::LiveState& first() const { return look_.ranks.front().live; }
  size_t room_beside(size_t text) const { return wide_ > text ? wide_ - text : 0; }
  // Those that fit beside a label, the first before the others.
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

}  // namespace snug::monitor
