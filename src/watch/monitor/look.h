// What is seen of a run in one look: the status that each of its processes left, what the kernel
// and the driver say of them, and where the run is a row of a suite, how far that is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/live_status.h"
#include "watch/machine/machine.h"

namespace snug::monitor {

struct RankLook {
  report::LiveState live;
  bool is_here = false;  // on this machine, so that it can be asked whether it is still there
  bool is_gone = false;  // its process is no more, and it has not said that it ended
  double silent_seconds = 0;
  std::optional<machine::ProcessUse> use;
  std::optional<double> processor_percent;  // 100 = one core; since the look before

  bool has_ended() const { return live.state == "ended"; }
  bool is_over() const { return has_ended() || is_gone; }
};

struct SuiteLook {
  std::string name, mode, current;  // current: a row's id; empty: none runs
  int done = 0, total = 0;
  std::vector<std::pair<std::string, std::string>> newest;  // rows and outcomes, the newest first
  bool is_over = false;
};

struct Look {
  std::filesystem::path folder;      // that was asked for
  std::filesystem::path run_folder;  // of the run that is seen
  double time = 0;                   // seconds since the epoch
  std::vector<RankLook> ranks;       // empty: it has not begun; in order
  machine::Gpus gpus;
  int cores = 1;
  std::optional<SuiteLook> suite;
};

// The run is over: all its processes ended, or are gone; on another machine, as far as is known.
bool is_over(const Look& look);
// One word: waiting, training, …, ok, oom, error, gone.
std::string state_word(const Look& look);
// "the run ended: out of memory …": for the end of the watching.
std::string ending_sentence(const Look& look);
// One line of JSON.
std::string look_json(const Look& look);

}  // namespace snug::monitor
