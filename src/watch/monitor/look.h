// A snapshot of a run: the status that each process wrote, what kernel and driver report about the
// processes, and the progress of the suite if the run is a row of one.
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
  bool is_here = false;  // the process is on this machine
  bool is_gone = false;  // the process has ended without writing so in its status
  double silent_seconds = 0;
  std::optional<machine::ProcessUse> use;
  std::optional<double> processor_percent;  // 100 = one core; since the previous look

  bool has_ended() const { return live.state == "ended"; }
  bool is_over() const { return has_ended() || is_gone; }
};

struct SuiteLook {
  std::string name, mode, current;  // current: the id of the running row; empty: none
  int done = 0, total = 0;
  std::vector<std::pair<std::string, std::string>> newest;  // rows and outcomes, newest first
  bool is_over = false;
};

struct Look {
  std::filesystem::path folder;      // of the run or suite that is followed
  std::filesystem::path run_folder;  // of the run that is shown
  double time = 0;                   // seconds since the epoch
  std::vector<RankLook> ranks;       // in order; empty: the run has not started
  machine::Gpus gpus;
  int cores = 1;
  std::optional<SuiteLook> suite;
};

// All processes have ended or are gone; those on other machines as far as is known.
bool is_over(const Look& look);
// One word: waiting, training, …, ok, oom, error, gone.
std::string state_word(const Look& look);
// The last line of snug monitor: "the run ended: out of memory …".
std::string ending_sentence(const Look& look);
// One line of JSON.
std::string look_json(const Look& look);

}  // namespace snug::monitor
